// The paced client of bench/client_failover.py, with franz-go. Arguments: BOOTSTRAP TOPIC.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func now() float64 {
	return float64(time.Now().UnixMicro()) / 1000
}

func main() {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(os.Args[1], ",")...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		panic(err)
	}
	for range time.Tick(5 * time.Millisecond) {
		sent := now()
		record := &kgo.Record{Topic: os.Args[2], Value: []byte("x")}
		client.Produce(context.Background(), record, func(_ *kgo.Record, err error) {
			if err == nil {
				fmt.Printf("%.1f %.1f\n", sent, now())
			}
		})
	}
}

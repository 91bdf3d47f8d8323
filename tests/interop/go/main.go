// The interop scenario with franz-go: the steps that tests/interop/README.md lists, against a
// running broker. Prints one line a step; exits 1 at the first step that does not hold.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	bootstrap = os.Args[1]
	prefix    = os.Args[2]
	mode      = os.Args[3]
)

func must(err error) {
	if err != nil {
		fail("%v", err)
	}
}

func fail(format string, args ...any) {
	fmt.Printf("FAILED: "+format+"\n", args...)
	os.Exit(1)
}

func client(options ...kgo.Opt) *kgo.Client {
	created, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.MetadataMinAge(100 * time.Millisecond),
	}, options...)...)
	must(err)
	return created
}

func createTopic(ctx context.Context, name string, partitions int32) {
	c := client()
	defer c.Close()
	response, err := kadm.NewClient(c).CreateTopic(ctx, partitions, 1, nil, name)
	must(err)
	must(response.Err)
}

// readAll consumes a topic from the beginning until count records came.
func readAll(ctx context.Context, topic string, count int) []*kgo.Record {
	c := client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer c.Close()
	var got []*kgo.Record
	for len(got) < count {
		fetches := c.PollFetches(ctx)
		must(fetches.Err())
		got = append(got, fetches.Records()...)
	}
	return got
}

func codecs(ctx context.Context) {
	for name, codec := range map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		topic := prefix + "-codec-" + name
		createTopic(ctx, topic, 3)
		producer := client(kgo.ProducerBatchCompression(codec), kgo.DefaultProduceTopic(topic))
		want := map[string]string{}
		var records []*kgo.Record
		for i := 0; i < 200; i++ {
			key, value := fmt.Sprintf("k%d", i), fmt.Sprintf("value %d of %s, and again: %d", i, name, i)
			want[key] = value
			records = append(records, &kgo.Record{Key: []byte(key), Value: []byte(value),
				Headers: []kgo.RecordHeader{{Key: "n", Value: []byte(fmt.Sprint(i))}}})
		}
		must(producer.ProduceSync(ctx, records...).FirstErr())
		producer.Close()
		for _, record := range readAll(ctx, topic, len(want)) {
			if want[string(record.Key)] != string(record.Value) || len(record.Headers) != 1 {
				fail("%s: wrong record %q", name, record.Key)
			}
			delete(want, string(record.Key))
		}
		if len(want) != 0 {
			fail("%s: %d records are missing", name, len(want))
		}
		fmt.Println("ok codec", name)
	}
}

type member struct {
	client   *kgo.Client
	mutex    sync.Mutex
	assigned map[int32]bool
	stop     context.CancelFunc
	done     chan struct{}
}

func (m *member) count() int {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return len(m.assigned)
}

func startMember(ctx context.Context, topic, group string, got *sync.Map) *member {
	m := &member{assigned: map[int32]bool{}, done: make(chan struct{})}
	change := func(to bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			m.mutex.Lock()
			defer m.mutex.Unlock()
			for _, p := range partitions[topic] {
				if to {
					m.assigned[p] = true
				} else {
					delete(m.assigned, p)
				}
			}
		}
	}
	m.client = client(kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		kgo.HeartbeatInterval(200*time.Millisecond), kgo.SessionTimeout(10*time.Second),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(change(true)), kgo.OnPartitionsRevoked(change(false)),
		kgo.OnPartitionsLost(change(false)))
	polling, stop := context.WithCancel(ctx)
	m.stop = stop
	go func() {
		defer close(m.done)
		for polling.Err() == nil {
			fetches := m.client.PollFetches(polling)
			fetches.EachRecord(func(r *kgo.Record) {
				count, _ := got.LoadOrStore(string(r.Value), new(int))
				*(count.(*int))++
			})
			if len(fetches.Records()) > 0 {
				must(m.client.CommitUncommittedOffsets(ctx))
			}
			m.client.AllowRebalance()
		}
	}()
	return m
}

func waitFor(what string, condition func() bool) {
	for deadline := time.Now().Add(30 * time.Second); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			fail("timed out: %s", what)
		}
	}
}

func group(ctx context.Context) {
	topic, name := prefix+"-group", prefix+"-group"
	createTopic(ctx, topic, 6)
	var got sync.Map
	size := func() int {
		n := 0
		got.Range(func(_, count any) bool {
			if *(count.(*int)) != 1 {
				fail("a record came %d times", *(count.(*int)))
			}
			n++
			return true
		})
		return n
	}
	members := []*member{}
	for i := 0; i < 3; i++ {
		members = append(members, startMember(ctx, topic, name, &got))
	}
	shares := func(want ...int) func() bool {
		return func() bool {
			var have []int
			for _, m := range members {
				have = append(have, m.count())
			}
			sort.Ints(have)
			return fmt.Sprint(have) == fmt.Sprint(want)
		}
	}
	waitFor("three members share six partitions", shares(2, 2, 2))
	producer := client(kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	send := func(from, to int) {
		for i := from; i < to; i++ {
			must(producer.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint(i))).FirstErr())
		}
	}
	send(0, 300)
	waitFor("300 records", func() bool { return size() == 300 })
	members[0].stop()
	<-members[0].done
	members[0].client.Close()
	members = members[1:]
	waitFor("two members share six partitions", shares(3, 3))
	send(300, 600)
	waitFor("600 records", func() bool { return size() == 600 })
	for _, m := range members {
		m.stop()
		<-m.done
		m.client.Close()
	}
	offsets, err := kadm.NewClient(producer).FetchOffsets(ctx, name)
	must(err)
	total := int64(0)
	offsets.Each(func(o kadm.OffsetResponse) { total += o.At })
	if total != 600 {
		fail("committed offsets sum to %d, not 600", total)
	}
	producer.Close()
	fmt.Println("ok group of three with a rebalance")
}

func timestamps(ctx context.Context) {
	topic := prefix + "-time"
	createTopic(ctx, topic, 1)
	producer := client(kgo.DefaultProduceTopic(topic))
	base := time.Now().Add(-time.Hour).Truncate(time.Second)
	for i := 0; i < 100; i++ {
		record := kgo.StringRecord(fmt.Sprint(i))
		record.Timestamp = base.Add(time.Duration(i) * time.Second)
		must(producer.ProduceSync(ctx, record).FirstErr())
	}
	listed, err := kadm.NewClient(producer).ListOffsetsAfterMilli(ctx, base.Add(49500*time.Millisecond).UnixMilli(), topic)
	must(err)
	if found, _ := listed.Lookup(topic, 0); found.Offset != 50 {
		fail("offset by timestamp is %d, not 50", found.Offset)
	}
	reader := client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AfterMilli(base.Add(49500*time.Millisecond).UnixMilli())))
	if first := reader.PollFetches(ctx).Records()[0]; string(first.Value) != "50" {
		fail("first record after seek is %s", first.Value)
	}
	reader.Close()
	producer.Close()
	fmt.Println("ok seek by timestamp")
}

func admin(ctx context.Context) {
	c := client()
	defer c.Close()
	a := kadm.NewClient(c)
	topic := prefix + "-admin"
	_, err := a.CreateTopic(ctx, 2, 1, map[string]*string{"retention.ms": kadm.StringPtr("3600000")}, topic)
	must(err)
	waitFor("the topic is listed", func() bool {
		topics, err := a.ListTopics(ctx, topic)
		return err == nil && len(topics[topic].Partitions) == 2
	})
	_, err = a.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: kadm.StringPtr("7200000")}}, topic)
	must(err)
	waitFor("the altered config is described", func() bool {
		described, err := a.DescribeTopicConfigs(ctx, topic)
		must(err)
		for _, config := range described[0].Configs {
			if config.Key == "retention.ms" {
				return *config.Value == "7200000"
			}
		}
		return false
	})
	created, err := a.CreatePartitions(ctx, 3, topic)
	must(err)
	must(created[topic].Err)
	waitFor("five partitions", func() bool {
		topics, err := a.ListTopics(ctx, topic)
		return err == nil && len(topics[topic].Partitions) == 5
	})
	deleted, err := a.DeleteTopics(ctx, topic)
	must(err)
	must(deleted[topic].Err)
	waitFor("the topic is gone", func() bool {
		topics, err := a.ListTopics(ctx)
		return err == nil && !topics.Has(topic)
	})
	fmt.Println("ok create, describe, alter, delete topics")
}

// idempotent produces through connections that are cut; nothing may be lost, doubled or reordered.
func idempotent(ctx context.Context) {
	topic := prefix + "-idempotent"
	createTopic(ctx, topic, 1)
	producer := client(kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(time.Millisecond),
		kgo.MaxBufferedRecords(50), kgo.RecordRetries(1000), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }))
	var failed error
	for i := 0; i < 2000; i++ {
		producer.Produce(ctx, kgo.StringRecord(fmt.Sprint(i)), func(_ *kgo.Record, err error) {
			if err != nil {
				failed = err
			}
		})
	}
	must(producer.Flush(ctx))
	must(failed)
	producer.Close()
	for i, record := range readAll(ctx, topic, 2000) {
		if string(record.Value) != fmt.Sprint(i) {
			fail("record %d is %s", i, record.Value)
		}
	}
	fmt.Println("ok idempotent producer with retries")
}

// transactional shows how a client is told that there are no transactions.
func transactional() {
	c := client(kgo.TransactionalID(prefix))
	defer c.Close()
	err := c.BeginTransaction()
	if err == nil {
		fail("a transaction began")
	}
	fmt.Println("transactions refused:", err)
}

// consumerProtocol shows that a member that asks for the new protocol reads by the classic one.
func consumerProtocol(ctx context.Context) {
	topic := prefix + "-protocol"
	createTopic(ctx, topic, 1)
	producer := client(kgo.DefaultProduceTopic(topic))
	must(producer.ProduceSync(ctx, kgo.StringRecord("x")).FirstErr())
	producer.Close()
	c := client(kgo.ConsumerGroup(prefix), kgo.ServerSideBalancer(), kgo.Balancers(kgo.RangeBalancer()),
		kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer c.Close()
	fetches := c.PollFetches(ctx)
	must(fetches.Err())
	if len(fetches.Records()) != 1 {
		fail("%d records", len(fetches.Records()))
	}
	described, err := kadm.NewClient(c).DescribeGroups(ctx, prefix)
	must(err)
	fmt.Println("consumes by protocol", described[prefix].ProtocolType, described[prefix].Protocol)
}

// hashes reads a topic whole and prints of each partition its number, how many records, and their
// hash.
func hashes(ctx context.Context, topic, rack string) {
	c := client(kgo.Rack(rack), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer c.Close()
	ends, err := kadm.NewClient(c).ListEndOffsets(ctx, topic)
	must(err)
	digests, counts, left := map[int32]hash.Hash{}, map[int32]int{}, map[int32]int64{}
	ends.Each(func(end kadm.ListedOffset) {
		must(end.Err)
		digests[end.Partition], left[end.Partition] = sha256.New(), end.Offset
	})
	for len(left) > 0 {
		fetches := c.PollFetches(ctx)
		must(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			var head [12]byte
			binary.BigEndian.PutUint64(head[:], uint64(record.Offset))
			binary.BigEndian.PutUint32(head[8:], uint32(len(record.Value)))
			digests[record.Partition].Write(head[:])
			digests[record.Partition].Write(record.Value)
			counts[record.Partition]++
			if record.Offset+1 >= left[record.Partition] {
				delete(left, record.Partition)
			}
		})
	}
	for partition, digest := range digests {
		fmt.Printf("%d %d %x\n", partition, counts[partition], digest.Sum(nil))
	}
}

func main() {
	if mode == "hashes" {
		hashes(context.Background(), prefix, os.Args[4])
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 120*time.Second)
	defer cancel()
	if mode == "idempotent" {
		idempotent(ctx)
		return
	}
	if mode == "transactional" {
		transactional()
		return
	}
	if mode == "consumer-protocol" {
		consumerProtocol(ctx)
		return
	}
	codecs(ctx)
	group(ctx)
	timestamps(ctx)
	admin(ctx)
}

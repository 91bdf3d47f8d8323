// What bench/client_failover.py asks of a client, with kafkajs: BOOTSTRAP TOPIC, see there.
'use strict'

const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, topic] = process.argv.slice(2)
const kafka = new Kafka({ brokers: bootstrap.split(','), logLevel: logLevel.NOTHING })
const now = () => performance.timeOrigin + performance.now()

async function main() {
  const producer = kafka.producer()
  await producer.connect()
  const send = async () => {
    const sent = now()
    try {
      await producer.send({ topic, messages: [{ partition: 0, value: 'x' }] })
      console.log(`${sent.toFixed(1)} ${now().toFixed(1)}`)
    } catch {
      // Its retries are over: a later record is delivered, or none is.
    }
  }
  setInterval(send, 5)
}

main()

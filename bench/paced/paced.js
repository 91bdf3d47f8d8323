// The paced client of bench/client_failover.py, with kafkajs. Arguments: BOOTSTRAP TOPIC.
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
      // The client has no retries left: a later record may still be delivered.
    }
  }
  setInterval(send, 5)
}

main()

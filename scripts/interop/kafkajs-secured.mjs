// TLS and SASL by kafkajs: a user with the rights to one topic and one group; another topic, group and secret refused.
// Usage: kafkajs-secured.mjs FILE, which has the users as scripts/interop/secured-clients writes them. A line for each step.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import kafkajs from 'kafkajs'

const { Kafka, logLevel } = kafkajs
const users = JSON.parse(readFileSync(process.argv[2])), LIMIT_MS = 60_000
let good = 0, count = 0

function client(user) {
  const ssl = { ca: [readFileSync(user.CA)] }
  if (user.Chain) Object.assign(ssl, { cert: readFileSync(user.Chain), key: readFileSync(user.Key) })
  const settings = { clientId: 'secured', brokers: [user.Address], ssl, logLevel: logLevel.NOTHING, retry: { retries: 2 } }
  const mechanism = user.Mechanism.toLowerCase()
  if (mechanism === 'oauthbearer') settings.sasl = { mechanism, oauthBearerProvider: async () => ({ value: user.Password }) }
  else if (mechanism) settings.sasl = { mechanism, username: user.Name, password: user.Password }
  return new Kafka(settings)
}

async function used(user) {
  const kafka = client(user), prefix = `js-${user.Name}-${Date.now()}-`, seen = []
  const producer = kafka.producer(), consumer = kafka.consumer({ groupId: user.Name })
  await producer.connect()
  await producer.send({ topic: 'secured', messages: Array.from({ length: 20 }, (_, number) => ({ value: prefix + number })) })
  await producer.disconnect()
  await consumer.connect()
  await consumer.subscribe({ topics: ['secured'], fromBeginning: true })
  await consumer.run({ eachMessage: async ({ message }) => {
    const value = message.value.toString()
    if (value.startsWith(prefix)) seen.push(value)
  } })
  for (const end = Date.now() + LIMIT_MS; seen.length < 20 && Date.now() < end;) await new Promise(done => setTimeout(done, 50))
  await consumer.disconnect()
  assert.deepEqual([seen.length, new Set(seen).size], [20, 20])
}

function saysTopic(error) { // kafkajs wraps what it has tried again
  for (let one = error; one; one = one.cause ?? one.originalError) if (one.type === 'TOPIC_AUTHORIZATION_FAILED') return true
  throw error
}

async function refused(user) {
  const kafka = client(user), producer = kafka.producer(), consumer = kafka.consumer({ groupId: 'hidden' })
  await producer.connect()
  await assert.rejects(producer.send({ topic: 'hidden', messages: [{ value: 'x' }] }), saysTopic)
  await producer.disconnect()
  const crash = new Promise(done => consumer.on(consumer.events.CRASH, ({ payload }) => done(payload.error)))
  await consumer.connect()
  await consumer.subscribe({ topics: ['secured'] })
  await consumer.run({ eachMessage: async () => {} }).catch(() => {})
  assert.equal((await crash).name, 'KafkaJSGroupCoordinatorNotFound') // it keeps the broker's reason to itself
  await consumer.disconnect()
}

async function noLogin(user) {
  const wrong = user.Mechanism ? { ...user, Password: 'wrong' } : { ...user, Chain: '' }
  const admin = client(wrong).admin()
  // kafkajs treats the challenge after a bad token (RFC 7628) as a success and continues; the broker closes the connection.
  const sorts = /SCRAM|PLAIN/.test(user.Mechanism) ? /SASLAuthenticationError/ : /Connection|NumberOfRetries/
  await assert.rejects(admin.connect().then(() => admin.listTopics()), error => sorts.test(error.name))
}

for (const user of users)
  for (const [what, run] of [['write and read in a group', used], ['another topic and group refused', refused], ['no login with a wrong secret', noLogin]]) {
    count++
    try {
      await run(user)
      good++
      console.log(`ok   kafkajs: ${what}, ${user.Name}`)
    } catch (error) {
      console.log(`FAIL kafkajs: ${what}, ${user.Name}\n      ${error.stack}`)
    }
  }
console.log(`${good} of ${count}`)
process.exit(good === count ? 0 : 1)

// The steps of `grpc_steps` with RocketMQ's client in Node.js.
import assert from 'node:assert/strict';
import process from 'node:process';
import { createRequire } from 'node:module';

const packages = createRequire(process.env.STEPS_PACKAGES);
const rocketmq = packages('rocketmq-client-nodejs');
const { FilterExpression, Producer, PushConsumer, SimpleConsumer, ConsumeResult } = rocketmq;
const { FilterType, TransactionResolution } = packages('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const DEADLINE = 90_000;
const [address, tls, ...names] = process.argv.slice(2);
const silent = { info() {}, warn() {}, error() {}, debug() {} };
const login = process.env.ACCESS_KEY && { accessKey: process.env.ACCESS_KEY, accessSecret: process.env.SECRET };
const options = {
  endpoints: address, namespace: '', sslEnabled: tls === 'tls', logger: silent, sessionCredentials: login || undefined,
};

function text(message) {
  return message.body.toString();
}

async function producer(topic) {
  const checker = {
    async check(message) {
      assert.equal(text(message), 'left behind');
      return TransactionResolution.COMMIT;
    },
  };
  const client = new Producer({ ...options, topic, checker });
  await client.startup();
  return client;
}

async function send(topic, ...messages) {
  const client = await producer(topic);
  for (const each of messages) await client.send({ topic, ...each, body: Buffer.from(each.body) });
  await client.shutdown();
}

async function simple(topic, group = topic, expression = FilterExpression.SUB_ALL) {
  const subscriptions = new Map([[topic, expression]]);
  const client = new SimpleConsumer({ ...options, consumerGroup: group, subscriptions, awaitDuration: 2000 });
  await client.startup();
  return client;
}

async function received(client, count) {
  const late = Date.now() + DEADLINE;
  const found = [];
  while (found.length < count) {
    assert(Date.now() < late, `${found.length} of ${count} messages came`);
    for (const each of await client.receive(32, 20_000)) {
      await client.ack(each);
      found.push(each);
    }
  }
  return found;
}

/** These messages, and no others that were sent before. */
async function only(client, ...wanted) {
  const found = [...await received(client, wanted.length), ...await client.receive(32, 20_000)];
  assert.deepEqual(found.map(text).sort(), wanted);
  await client.shutdown();
}

/** Waits until `listener` has been given so many messages. */
async function pushed(topic, count, listener, group = topic, expression = FilterExpression.SUB_ALL) {
  const came = [];
  let finish;
  const finished = new Promise(resolve => { finish = resolve; });
  const client = new PushConsumer({
    ...options,
    consumerGroup: group,
    subscriptions: new Map([[topic, expression]]),
    messageListener: {
      async consume(message) {
        came.push(`${text(message)} ${message.deliveryAttempt}`);
        if (came.length === count) finish();
        return listener(text(message));
      },
    },
  });
  await client.startup();
  const late = setTimeout(() => { throw new Error(`${topic}: ${came} came`); }, DEADLINE);
  await finished;
  clearTimeout(late);
  return [client, came];
}

const steps = {
  async exchange() {
    const messages = Array.from({ length: 10 }, (_, number) => ({
      body: `message ${number}`,
      tag: number % 2 ? 'odd' : 'even',
      keys: [`key${number}`],
      properties: new Map([['tenant', 'blåu']]),
    }));
    await send('exchange', ...messages);
    const client = await simple('exchange');
    for (const each of await received(client, 10)) {
      const sent = messages.find(({ body }) => body === text(each));
      assert(!each.corrupted);
      assert.equal(each.tag, sent.tag);
      assert.deepEqual(each.keys, sent.keys);
      assert.deepEqual([...each.properties], [['tenant', 'blåu']]);
      assert.equal(each.deliveryAttempt, 1);
    }
    await client.shutdown();
  },

  async ordered() {
    const messages = [];
    for (let number = 0; number < 10; number++) {
      for (const messageGroup of ['a', 'b']) messages.push({ body: `${messageGroup} ${number}`, messageGroup });
    }
    await send('ordered', ...messages);
    const [client, came] = await pushed('ordered', 20, () => ConsumeResult.SUCCESS);
    for (const group of ['a', 'b']) {
      const numbers = came.filter(each => each.startsWith(group)).map(each => Number(each.split(' ')[1]));
      assert.deepEqual(numbers, Array.from({ length: 10 }, (_, number) => number));
    }
    await client.shutdown();
  },

  async delayed() {
    const due = Date.now() + 3000;
    await send('delayed', { body: 'later', deliveryTimestamp: new Date(due) });
    const client = await simple('delayed');
    assert.equal(text((await received(client, 1))[0]), 'later');
    assert(Date.now() >= due - 1000);
    await client.shutdown();
  },

  /** One of two that are due at the same time. */
  async recall() {
    const client = await producer('recall');
    const deliveryTimestamp = new Date(Date.now() + 5000);
    const handles = [];
    for (const body of ['recalled', 'delivered']) {
      const receipt = await client.send({ topic: 'recall', body: Buffer.from(body), deliveryTimestamp });
      handles.push(receipt.recallHandle);
    }
    await client.recallMessage('recall', handles[0]);
    await only(await simple('recall'), 'delivered');
    await client.shutdown();
  },

  async transactions() {
    const client = await producer('transactions');
    for (const body of ['yes', 'no']) {
      const transaction = client.beginTransaction();
      await client.send({ topic: 'transactions', body: Buffer.from(body) }, transaction);
      await (body === 'yes' ? transaction.commit() : transaction.rollback());
    }
    await only(await simple('transactions'), 'yes');
    await client.shutdown();
  },

  async crash() {
    const client = await producer('takeover');
    await client.send({ topic: 'takeover', body: Buffer.from('left behind') }, client.beginTransaction());
    process.exit(7);
  },

  async takeover() {
    const client = await producer('takeover');
    await only(await simple('takeover'), 'left behind');
    await client.shutdown();
  },

  async filters() {
    const tags = ['red', 'green', 'blue'];
    await send('filters', ...tags.map(tag => (
      { body: tag, tag, properties: new Map([['length', `${tag.length}`]]) })));
    await only(await simple('filters', 'tags', new FilterExpression('red || blue')), 'blue', 'red');
    await only(await simple('filters', 'sql', new FilterExpression('length > 3', FilterType.SQL)), 'blue', 'green');
  },

  /** In one queue, the last message is one that both consumers take. */
  async selective() {
    const tags = ['red', 'green', 'blue', 'red', 'green', 'blue', 'red'];
    await send('selective', ...tags.map((tag, number) => (
      { body: `${tag} ${number}`, tag, properties: new Map([['number', `${number}`]]), messageGroup: 'one' })));
    const expect = async (group, expression, wanted) => {
      const [client, came] = await pushed('selective', wanted.length, () => ConsumeResult.SUCCESS, group, expression);
      await client.shutdown();
      assert.deepEqual(came.sort(), wanted.map(each => `${each} 1`).sort());
    };
    await expect('by-tag', new FilterExpression('red || blue'), ['red 0', 'blue 2', 'red 3', 'blue 5', 'red 6']);
    const sql = new FilterExpression("number BETWEEN 3 AND 4 OR TAGS = 'red'", FilterType.SQL);
    await expect('by-sql', sql, ['red 0', 'red 3', 'green 4', 'red 6']);
  },

  /** For a login that may not send: it prints why. */
  async refused() {
    const error = await send('refused', { body: 'body' }).then(() => null, failed => failed);
    assert(error, 'the message was sent');
    console.log(`${error}`.replaceAll(/\s+/g, ' '));
  },

  async retries() {
    await send('retries', { body: 'bad' }, { body: 'good' });
    const [client, came] = await pushed(
      'retries', 3, body => (body === 'good' ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE));
    assert.deepEqual(came.sort(), ['bad 1', 'bad 2', 'good 1']);
    await only(await simple('%DLQ%retries', 'undertakers'), 'bad');
    await client.shutdown();
  },

  async redelivery() {
    await send('redelivery', { body: 'again' });
    const client = await simple('redelivery');
    const late = Date.now() + DEADLINE;
    const attempts = [];
    while (attempts.length < 2) {
      assert(Date.now() < late, `attempts ${attempts}`);
      for (const each of await client.receive(32, 1000)) {
        attempts.push(each.deliveryAttempt);
        if (attempts.length === 2) await client.ack(each);
      }
    }
    assert.deepEqual(attempts, [1, 2]);
    await client.shutdown();
  },

  async inbox() {
    const client = await simple('inbox');
    const found = new Map((await received(client, 3)).map(each => [text(each), each]));
    const tagged = found.get('grüße von Kafka');
    assert.equal(tagged.tag, 'red');
    assert.deepEqual(tagged.keys, ['from.kafka']);
    assert.deepEqual([...tagged.properties], [['tenant', 'röt']]);
    const ofAmqp = found.get('grüße von AMQP');
    assert.deepEqual(ofAmqp.keys, ['from.amqp']);
    assert.deepEqual([...ofAmqp.properties], [['tenant', 'blåu']]);
    assert(found.has('ohne alles'));
    await client.shutdown();
  },
};

await Promise.all(names.map(async name => {
  try {
    await steps[name]();
  } catch (error) {
    throw new Error(`step ${name}`, { cause: error });
  }
  console.log(`done ${name}`);
}));
process.exit(0);

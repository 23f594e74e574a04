// What is asked of the broker. Each gets a connection, a channel with confirms, and a name of its own.
import assert from "node:assert/strict";
import { Inbox, all, event, numbers, refusal, send } from "./inbox.mjs";

const exclusive = { exclusive: true };

async function workQueue({ connection, channel, name }) {
  await channel.assertQueue(name, { autoDelete: true, durable: false });
  const inboxes = [];
  for (let worker = 0; worker < 3; worker++) {
    const own = await connection.createChannel();
    await own.prefetch(1);
    inboxes.push(await Inbox.of(own, name, { ack: true }));
  }
  await send(channel, name, numbers(60));
  const done = () => inboxes.flatMap((inbox) => inbox.bodies);
  while (done().length < 60) await Promise.race(inboxes.map((inbox) => inbox.has(inbox.messages.length + 1)));
  assert.deepEqual(done().sort(), numbers(60).sort());
  assert.ok(inboxes.every((inbox) => inbox.messages.length > 0));
}

async function prefetch({ connection, channel, name }) {
  await channel.assertQueue(name, exclusive);
  const own = await connection.createChannel();
  await own.prefetch(3);
  await send(channel, name, numbers(10));
  const inbox = await Inbox.of(own, name);
  await inbox.has(3);
  assert.equal((await channel.checkQueue(name)).messageCount, 7);
  own.ack(inbox.messages[2], true);
  await inbox.has(6);
  assert.deepEqual(inbox.bodies, numbers(6));
}

async function properties({ channel, name }) {
  await channel.assertQueue(name, exclusive);
  const sent = {
    contentType: "text/plain",
    contentEncoding: "utf-8",
    headers: { text: "ä", number: 5, large: 2 ** 40, truth: true, list: ["a", 1], table: { deep: "x" }, half: 0.5 },
    deliveryMode: 2,
    priority: 3,
    correlationId: "c",
    replyTo: "r",
    expiration: "60000",
    messageId: "m",
    timestamp: 1700000000,
    type: "t",
    userId: "guest",
    appId: "a",
  };
  await send(channel, name, ["x"], { ...sent, persistent: true });
  const message = await channel.get(name, { noAck: true });
  for (const [key, value] of Object.entries(sent)) assert.deepEqual(message.properties[key], value, key);
}

async function bodies({ channel, name }) {
  await channel.assertQueue(name, exclusive);
  const inbox = await Inbox.of(channel, name, { noAck: true });
  const sizes = [0, 1, 4088, 131064, 131065, 3_000_000];
  for (const size of sizes) channel.sendToQueue(name, Buffer.alloc(size, "x"));
  await inbox.has(sizes.length);
  assert.deepEqual(inbox.messages.map((message) => message.content.length), sizes);
}

async function exchanges({ channel, name }) {
  const routed = async (kind, bindings, sent) => {
    await channel.assertExchange(`${name}-${kind}`, kind, { autoDelete: true, durable: false });
    const queues = [];
    for (const [key, args] of bindings) {
      const { queue } = await channel.assertQueue("", exclusive);
      await channel.bindQueue(queue, `${name}-${kind}`, key, args);
      queues.push(queue);
    }
    for (const [key, headers] of sent) channel.publish(`${name}-${kind}`, key, Buffer.from(key), { headers });
    await channel.waitForConfirms();
    return Promise.all(queues.map((queue) => all(channel, queue)));
  };
  assert.deepEqual(await routed("fanout", [["", {}], ["x", {}]], [["a"], ["b"]]), [["a", "b"], ["a", "b"]]);
  assert.deepEqual(await routed("direct", [["a", {}], ["b", {}]], [["a"], ["b"], ["c"]]), [["a"], ["b"]]);
  assert.deepEqual(
    await routed("topic", [["a.*", {}], ["#.c", {}], ["*.b.#", {}]], [["a.b"], ["c"], ["a.b.c"], ["a"]]),
    [["a.b"], ["c", "a.b.c"], ["a.b", "a.b.c"]],
  );
  const both = { "x-match": "all", one: 1, two: "2" };
  const either = { "x-match": "any", one: 1, two: "2" };
  assert.deepEqual(
    await routed(
      "headers",
      [["", both], ["", either]],
      [["both", { one: 1, two: "2" }], ["one", { one: 1 }], ["none", {}]],
    ),
    [["both"], ["both", "one"]],
  );
}

async function exchangeToExchange({ channel, name }) {
  for (const end of ["source", "target"]) await channel.assertExchange(`${name}-${end}`, "fanout", { autoDelete: true });
  await channel.bindExchange(`${name}-target`, `${name}-source`, "");
  await channel.assertQueue(name, exclusive);
  await channel.bindQueue(name, `${name}-target`, "");
  channel.publish(`${name}-source`, "", Buffer.from("x"));
  await channel.waitForConfirms();
  assert.deepEqual(await all(channel, name), ["x"]);
}

async function alternateExchange({ channel, name }) {
  await channel.assertExchange(`${name}-strays`, "fanout", { autoDelete: true });
  await channel.assertExchange(name, "direct", { autoDelete: true, alternateExchange: `${name}-strays` });
  await channel.assertQueue(name, exclusive);
  await channel.bindQueue(name, `${name}-strays`, "");
  channel.publish(name, "unknown", Buffer.from("stray"), { mandatory: true });
  await channel.waitForConfirms();
  assert.deepEqual(await all(channel, name), ["stray"]);
}

async function mandatory({ channel, name }) {
  const returned = event(channel, "return");
  channel.publish("", `${name}-missing`, Buffer.from("lost"), { mandatory: true, messageId: "m" });
  await channel.waitForConfirms();
  const message = await returned;
  assert.equal(message.fields.replyCode, 312);
  assert.equal(message.content.toString(), "lost");
  assert.equal(message.properties.messageId, "m");
}

async function confirms({ channel, name }) {
  await channel.assertQueue(name, { ...exclusive, maxLength: 2, arguments: { "x-overflow": "reject-publish" } });
  const confirmed = (body) =>
    new Promise((resolve) => channel.sendToQueue(name, Buffer.from(body), {}, (error) => resolve(!error)));
  const outcomes = await Promise.all(numbers(4).map(confirmed));
  assert.deepEqual(outcomes.sort(), [false, false, true, true]);
}

async function requeue({ channel, name }) {
  await channel.assertQueue(name, exclusive);
  await send(channel, name, numbers(5));
  const held = [];
  for (let count = 0; count < 3; count++) held.push(await channel.get(name));
  channel.nack(held[1]);
  channel.reject(held[0]);
  channel.nack(held[2]);
  assert.deepEqual(await all(channel, name), numbers(5));
}

async function deadLetters({ channel, name }) {
  await channel.assertQueue(`${name}-dead`, exclusive);
  const dead = await Inbox.of(channel, `${name}-dead`, { noAck: true });
  await channel.assertQueue(name, { ...exclusive, deadLetterExchange: "", deadLetterRoutingKey: `${name}-dead` });
  await send(channel, name, ["expires"], { expiration: 20 });
  await dead.has(1);
  await send(channel, name, ["rejected"]);
  channel.reject(await channel.get(name), false);
  await dead.has(2);
  assert.deepEqual(dead.bodies, ["expires", "rejected"]);
  const deaths = dead.messages.map((message) => message.properties.headers["x-death"][0]);
  assert.deepEqual(deaths.map((death) => [death.reason, death.queue, death.count]), [
    ["expired", name, 1],
    ["rejected", name, 1],
  ]);
}

async function priorities({ channel, name }) {
  await channel.assertQueue(name, { ...exclusive, maxPriority: 5 });
  for (const priority of [1, 5, 0, 3]) await send(channel, name, [String(priority)], { priority });
  assert.deepEqual(await all(channel, name), ["5", "3", "1", "0"]);
}

async function maxLength({ channel, name }) {
  await channel.assertQueue(name, { ...exclusive, maxLength: 3 });
  await send(channel, name, numbers(5));
  assert.deepEqual(await all(channel, name), ["2", "3", "4"]);
}

async function singleActiveConsumer({ connection, channel, name }) {
  await channel.assertQueue(name, { ...exclusive, arguments: { "x-single-active-consumer": true } });
  const [first, second] = [await connection.createChannel(), await connection.createChannel()];
  const active = await Inbox.of(first, name, { ack: true });
  const waiting = await Inbox.of(second, name, { ack: true });
  await send(channel, name, ["a", "b"]);
  await active.has(2);
  await first.close();
  await send(channel, name, ["c"]);
  await waiting.has(1);
  assert.deepEqual([active.bodies, waiting.bodies], [["a", "b"], ["c"]]);
}

async function cancelNotice({ connection, channel, name }) {
  await channel.assertQueue(name, exclusive);
  const inbox = await Inbox.of(channel, name);
  await (await connection.createChannel()).deleteQueue(name);
  await inbox.has(1);
  assert.deepEqual(inbox.bodies, [null]);
}

async function exclusiveQueue({ amqplib, url, channel, name }) {
  await channel.assertQueue(name, exclusive);
  const other = await amqplib.connect(url);
  assert.equal(await refusal(other, (stranger) => stranger.consume(name, () => {})), 405);
  assert.equal(await refusal(other, (stranger) => stranger.assertQueue(name, exclusive)), 405);
  await other.close();
}

async function refusals({ connection, channel, name }) {
  assert.equal(await refusal(connection, (own) => own.checkQueue(name)), 404);
  assert.equal(await refusal(connection, (own) => own.checkExchange(name)), 404);
  await channel.assertQueue(name, exclusive);
  assert.equal(await refusal(connection, (own) => own.assertQueue(name, { ...exclusive, maxLength: 5 })), 406);
  assert.equal(await refusal(connection, async (own) => own.ack({ fields: { deliveryTag: 7 } })), 406);
  assert.equal(await refusal(connection, async (own) => own.publish(name, "", Buffer.from(""))), 404);
}

async function rpc({ connection, channel, name }, replyTo) {
  const server = await connection.createChannel();
  await server.assertQueue(name, exclusive);
  await server.consume(name, (call) => {
    const { replyTo: to, correlationId } = call.properties;
    server.sendToQueue(to, Buffer.from(call.content.toString().toUpperCase()), { correlationId });
    server.ack(call);
  });
  const replies = await Inbox.of(channel, replyTo, { noAck: true });
  for (const body of ["a", "b", "c"]) channel.sendToQueue(name, Buffer.from(body), { replyTo, correlationId: body });
  await replies.has(3);
  assert.deepEqual(replies.bodies.sort(), ["A", "B", "C"]);
  assert.ok(replies.messages.every(({ content, properties }) => content.toString() === properties.correlationId.toUpperCase()));
}

async function rpcWithReplyQueue(world) {
  await rpc(world, (await world.channel.assertQueue("", exclusive)).queue);
}

async function rpcWithDirectReply(world) {
  await rpc(world, "amq.rabbitmq.reply-to");
}

/** amqplib sends the close of the connection before what its channels have in their buffers. */
async function closeWithFullBuffers({ amqplib, url, name }) {
  const own = await amqplib.connect(url);
  const channel = await own.createChannel();
  await channel.assertQueue(name, exclusive);
  while (channel.sendToQueue(name, Buffer.from("x")));
  await own.close();
}

async function manyChannels({ connection, name }) {
  const use = async (number) => {
    const channel = await connection.createConfirmChannel();
    const { queue } = await channel.assertQueue(`${name}-${number}`, exclusive);
    await send(channel, queue, [String(number)]);
    assert.deepEqual(await all(channel, queue), [String(number)]);
    await channel.close();
  };
  await Promise.all(numbers(50).map(use));
}

/** Only with the plugin in RabbitMQ. */
async function delayedMessages({ channel, name }) {
  await channel.assertExchange(name, "x-delayed-message", { autoDelete: true, arguments: { "x-delayed-type": "direct" } });
  await channel.assertQueue(name, exclusive);
  await channel.bindQueue(name, name, "key");
  const inbox = await Inbox.of(channel, name, { noAck: true });
  for (const delay of [300, 100, 0]) channel.publish(name, "key", Buffer.from(String(delay)), { headers: { "x-delay": delay } });
  await inbox.has(3);
  assert.deepEqual(inbox.bodies, ["0", "100", "300"]);
}

export const scenarios = {
  workQueue,
  prefetch,
  properties,
  bodies,
  exchanges,
  exchangeToExchange,
  alternateExchange,
  mandatory,
  confirms,
  requeue,
  deadLetters,
  priorities,
  maxLength,
  singleActiveConsumer,
  cancelNotice,
  exclusiveQueue,
  refusals,
  rpcWithReplyQueue,
  rpcWithDirectReply,
  closeWithFullBuffers,
  manyChannels,
  delayedMessages,
};

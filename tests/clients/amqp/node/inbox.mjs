// What scenarios do over and over.

/** A consumer that keeps what it is handed; `await inbox.has(3)` waits until there are three. */
export class Inbox {
  messages = [];
  #waiting = [];

  static async of(channel, queue, options = {}) {
    const inbox = new Inbox();
    inbox.channel = channel;
    const { consumerTag } = await channel.consume(queue, (message) => inbox.#receive(message, options), options);
    inbox.tag = consumerTag;
    return inbox;
  }

  get bodies() {
    return this.messages.map((message) => message?.content.toString() ?? null);
  }

  has(count) {
    return new Promise((resolve) => {
      this.#waiting.push([count, resolve]);
      this.#wake();
    });
  }

  #receive(message, options) {
    this.messages.push(message);
    if (message !== null && options.ack) this.channel.ack(message);
    this.#wake();
  }

  #wake() {
    this.#waiting = this.#waiting.filter(([count, resolve]) => {
      if (this.messages.length < count) return true;
      resolve(this);
      return false;
    });
  }
}

export async function send(channel, queue, bodies, options = {}) {
  for (const body of bodies) channel.sendToQueue(queue, Buffer.from(body), options);
  await channel.waitForConfirms?.();
}

/** The bodies of all that is in a queue now. */
export async function all(channel, queue) {
  const found = [];
  for (let message; (message = await channel.get(queue, { noAck: true })); ) found.push(message.content.toString());
  return found;
}

export const event = (emitter, name) => new Promise((resolve) => emitter.once(name, resolve));

export const numbers = (count) => Array.from({ length: count }, (_, index) => String(index));

/** The code that a channel was closed with. */
export async function refusal(connection, attempt) {
  const channel = await connection.createChannel();
  const closed = event(channel, "error");
  attempt(channel).catch(() => {});
  return (await closed).code;
}

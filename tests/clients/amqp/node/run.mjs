// node run.mjs URL SCENARIO: runs one scenario with amqplib; it ends well, or with what went wrong and exit code 1.
import { createRequire } from "node:module";
import { randomUUID } from "node:crypto";
import { scenarios } from "./scenarios.mjs";

const amqplib = createRequire(`${process.env.AMQPLIB_DIRECTORY}/`)("amqplib");
const [url, scenario] = process.argv.slice(2);
const SECONDS = 20;

const watchdog = setTimeout(() => {
  console.error(`${scenario} did not end in ${SECONDS} s`);
  process.exit(1);
}, SECONDS * 1000);

const connection = await amqplib.connect(url);
connection.on("error", (error) => console.error(`connection: ${error.message}`));
try {
  await scenarios[scenario]({
    amqplib,
    url,
    connection,
    channel: await connection.createConfirmChannel(),
    name: `node-${randomUUID()}`,
  });
  await connection.close();
  clearTimeout(watchdog);
} catch (error) {
  console.error(error);
  process.exit(1);
}

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * What stock clients of RocketMQ do. Each argument after the address names a step; all run at once, because they wait most of
 * the time, and each has topics and groups of its own. A line is printed when one is done.
 */
public class Steps {
    public static void main(String[] arguments) throws Exception {
        Rocket.address = arguments[0];
        ExecutorService threads = Executors.newCachedThreadPool();
        List<Future<?>> running = new ArrayList<>();
        for (String argument : List.of(arguments).subList(1, arguments.length)) {
            running.add(threads.submit(() -> {
                try {
                    run(argument.split(":"));
                    print("done " + argument);
                } catch (Throwable error) {
                    synchronized (Steps.class) {
                        System.err.println("failed " + argument);
                        error.printStackTrace();
                    }
                    throw new IllegalStateException(argument, error);
                }
            }));
        }
        int failed = 0;
        for (Future<?> each : running) {
            try {
                each.get();
            } catch (java.util.concurrent.ExecutionException error) {
                failed = 1;
            }
        }
        System.exit(failed);
    }

    static void run(String... words) throws Exception {
        switch (words[0]) {
            case "normal" -> Sending.normal();
            case "ordered" -> Sending.ordered();
            case "delayed" -> Sending.delayed();
            case "large" -> Sending.large();
            case "requests" -> Requesting.requests();
            case "queries" -> Querying.queries();
            case "recall" -> Querying.recall();
            case "refused" -> Querying.refused();
            case "transactions" -> Transactions.decided();
            case "crash" -> Transactions.crash();
            case "takeover" -> Transactions.takeover();
            case "deciding" -> Transactions.deciding();
            case "filters" -> Consuming.filters();
            case "broadcasting" -> Consuming.broadcasting();
            case "lite" -> Consuming.lite();
            case "pulls" -> Pulling.pulls();
            case "retries" -> Consuming.retries();
            case "replay" -> Consuming.replay(Long.parseLong(words[1]), Integer.parseInt(words[2]));
            case "subscriptions" -> Consuming.subscriptions();
            case "trace" -> Consuming.trace();
            case "namespaces" -> Consuming.namespaces();
            case "restart" -> Going.on();
            case "write" -> Exchanging.write(words[1]);
            case "read" -> Exchanging.read(words[1], Integer.parseInt(words[2]));
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    static void check(boolean holds, Object found) {
        if (!holds) throw new AssertionError(String.valueOf(found));
    }

    static synchronized void print(String line) {
        System.out.println(line);
        System.out.flush();
    }
}

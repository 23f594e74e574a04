import apache.rocketmq.v2.Encoding;
import apache.rocketmq.v2.Message;
import apache.rocketmq.v2.SendMessageRequest;
import com.google.protobuf.ByteString;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.ClientInterceptors;
import io.grpc.ForwardingClientCall;
import io.grpc.MethodDescriptor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.UUID;
import org.apache.rocketmq.common.constant.GrpcConstants;
import org.apache.rocketmq.proxy.config.ConfigurationManager;
import org.apache.rocketmq.test.grpc.v2.GrpcBaseIT;

/**
 * Upstream's integration tests of the gRPC protocol, out of its jar of tests, against a broker that is there: its port of gRPC, which has
 * TLS, is the first argument, and names of tests are the others. One line is printed for each: name, passed or failed, milliseconds, why.
 */
public class GrpcTests extends GrpcBaseIT {
    static final ByteString GZIP = ByteString.fromHex("1f8b");
    static final List<String> TESTS = List.of("testQueryRoute", "testQueryAssignment", "testQueryFifoAssignment", "testTransactionCheckThenCommit",
        "testSimpleConsumerSendAndRecvDelayMessage", "testSimpleConsumerSendAndRecallDelayMessage", "testSimpleConsumerSendAndRecvBigMessage",
        "testSimpleConsumerSendAndRecv", "testSimpleConsumerToDLQ", "testConsumeOrderly", "testSimpleConsumerSendAndRecvPriorityMessage");

    public static void main(String[] arguments) throws Exception {
        Path home = Files.createTempDirectory("proxy");
        Files.createDirectories(home.resolve("conf"));
        Files.writeString(home.resolve("conf/rmq-proxy.json"), "{}");
        System.setProperty(ConfigurationManager.RMQ_PROXY_HOME, home.toString());
        ConfigurationManager.initEnv();
        ConfigurationManager.initConfig();
        int port = Integer.parseInt(arguments[0]);
        List<String> wanted = List.of(arguments).subList(1, arguments.length);
        for (String test : wanted.isEmpty() ? TESTS : wanted) run(port, test);
        System.exit(0);  // clients of the tests have threads
    }

    static void run(int port, String test) {
        long started = System.currentTimeMillis();
        String outcome = "passed", why = "";
        try {
            GrpcTests tests = new GrpcTests(port);
            tests.getClass().getMethod(test).invoke(tests);
        } catch (InvocationTargetException error) {
            outcome = "failed";
            why = String.valueOf(error.getCause());
            error.getCause().printStackTrace();
        } catch (Exception error) {
            outcome = "failed";
            why = String.valueOf(error);
        }
        System.out.println(test + "\t" + outcome + "\t" + (System.currentTimeMillis() - started) + "\t" + why.replaceAll("\\s+", " "));
    }

    GrpcTests(int port) throws Exception {
        header.put(GrpcConstants.CLIENT_ID, "client-id" + UUID.randomUUID());
        header.put(GrpcConstants.LANGUAGE, "JAVA");
        ConfigurationManager.getProxyConfig().setGrpcServerPort(port);
        Field field = GrpcBaseIT.class.getDeclaredField("port");
        field.setAccessible(true);
        field.setInt(this, port);
        blockingStub = createBlockingStub(ClientInterceptors.intercept(createChannel(port), new PlainBodies()));
        stub = createStub(createChannel(port));
    }

    /** Some tests say that a plain body is compressed by GZIP, which Posthouse refuses: here they say that it is plain. */
    static class PlainBodies implements ClientInterceptor {
        @Override
        public <A, B> ClientCall<A, B> interceptCall(MethodDescriptor<A, B> method, CallOptions options, Channel next) {
            return new ForwardingClientCall.SimpleForwardingClientCall<>(next.newCall(method, options)) {
                @Override
                @SuppressWarnings("unchecked")
                public void sendMessage(A message) {
                    super.sendMessage(message instanceof SendMessageRequest ? (A) plain((SendMessageRequest) message) : message);
                }
            };
        }
    }

    static SendMessageRequest plain(SendMessageRequest request) {
        SendMessageRequest.Builder builder = request.toBuilder();
        for (Message.Builder each : builder.getMessagesBuilderList()) {
            if (!each.getBody().startsWith(GZIP)) each.getSystemPropertiesBuilder().setBodyEncoding(Encoding.IDENTITY);
        }
        return builder.build();
    }

    /** Stands beside the base class, where each kind of cluster has its own number of queues. */
    public void testQueryRoute() throws Exception {
        assertQueryRoute(blockingStub.queryRoute(buildQueryRouteRequest(initTopic())), 24);
    }
}

package peer;

import java.util.Set;

/**
 * kwik as an endpoint of the public QUIC interop runner, over HTTP/0.9 and, by flupke, HTTP/3. The contract
 * is in peers/contract/src/runner.rs.
 */
public final class Endpoint {
    /** The exit code for a test case that is not supported. */
    private static final int UNSUPPORTED = 127;

    /**
     * Test cases that kwik supports in both roles. It has no ECN and no preferred address.
     */
    private static final Set<String> CASES = Set.of(
            "handshake",
            "transfer",
            "longrtt",
            "chacha20",
            "multiplexing",
            "retry",
            "resumption",
            "zerortt",
            "http3",
            "blackhole",
            "keyupdate",
            "amplificationlimit",
            "multiconnect",
            "handshakeloss",
            "transferloss",
            "handshakecorruption",
            "transfercorruption",
            "v2",
            "ipv6",
            "goodput",
            "crosstraffic",
            "rebind-port",
            "rebind-addr");

    private Endpoint() {}

    /** Does what the environment asks for. */
    public static void main(String[] arguments) {
        System.exit(run());
    }

    private static int run() {
        try {
            Environment environment = Environment.read();
            if (!CASES.contains(environment.testCase())) {
                System.err.println("endpoint-kwik: this test case is not supported");
                return UNSUPPORTED;
            }
            String role = Environment.variable("ROLE", "");
            switch (role) {
                case "client" -> new Client(environment).run();
                case "server" -> new Server(environment).run();
                default -> throw new IllegalArgumentException(
                        "ROLE is \"" + role + "\": expected \"client\" or \"server\"");
            }
            return 0;
        } catch (Exception error) {
            System.err.println("endpoint-kwik: " + error);
            error.printStackTrace();
            return 1;
        }
    }
}

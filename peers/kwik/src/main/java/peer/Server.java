package peer;

import java.io.IOException;
import java.io.OutputStream;
import java.net.DatagramSocket;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import tech.kwik.core.QuicConnection;
import tech.kwik.core.QuicConnection.QuicVersion;
import tech.kwik.core.QuicStream;
import tech.kwik.core.log.SysOutLogger;
import tech.kwik.core.server.ApplicationProtocolConnection;
import tech.kwik.core.server.ApplicationProtocolConnectionFactory;
import tech.kwik.core.server.ServerConnectionConfig;
import tech.kwik.core.server.ServerConnector;
import tech.kwik.flupke.server.Http3ApplicationProtocolFactory;

/** Serves the files of the runner until it is killed. */
final class Server {
    /** The application protocol of HTTP/0.9 over QUIC. */
    static final String HQ = "hq-interop";

    /** How long a connection may be silent, in seconds: with 30 % loss, some handshakes take long. */
    private static final int IDLE_SECONDS = 120;

    /** Streams that a client may open at once. The runner wants 1,000 at most. */
    private static final int STREAMS = 1000;

    /** Longest request of HTTP/0.9 in bytes. */
    private static final int MAX_REQUEST = 4096;

    private final Environment environment;

    /** As many threads as there are requests at once. */
    private final ExecutorService threads = Executors.newCachedThreadPool();

    Server(Environment environment) {
        this.environment = environment;
    }

    void run() throws Exception {
        ServerConnectionConfig configuration = ServerConnectionConfig.builder()
                .maxIdleTimeoutInSeconds(IDLE_SECONDS)
                .maxUnidirectionalStreamBufferSize(1_000_000)
                .maxBidirectionalStreamBufferSize(1_000_000)
                .maxConnectionBufferSize(10_000_000)
                // The control stream of HTTP/3, and those of QPACK.
                .maxOpenPeerInitiatedUnidirectionalStreams(3)
                .maxOpenPeerInitiatedBidirectionalStreams(STREAMS)
                .retryRequired(environment.testCase().equals("retry"))
                .build();
        SysOutLogger log = new SysOutLogger();
        log.logWarning(true);
        ServerConnector connector = ServerConnector.builder()
                .withSocket(new DatagramSocket(environment.port()))
                .withKeyStore(Certificates.read(environment.certs()), Certificates.ALIAS, Certificates.PASSWORD)
                .withSupportedVersions(List.of(QuicVersion.V1, QuicVersion.V2))
                .withConfiguration(configuration)
                .withLogger(log)
                .build();
        connector.registerApplicationProtocol(HQ, new HqFactory());
        connector.registerApplicationProtocol("h3", new Http3ApplicationProtocolFactory((request, response) -> {
            byte[] content = environment.page(request.path());
            response.setStatus(content == null ? 404 : 200);
            if (content != null) {
                response.getOutputStream().write(content);
            }
        }));
        connector.start();
        System.out.println("listening on port " + environment.port());
        new CountDownLatch(1).await();
    }

    /** Connections with HTTP/0.9. */
    private final class HqFactory implements ApplicationProtocolConnectionFactory {
        @Override
        public ApplicationProtocolConnection createConnection(String protocol, QuicConnection connection) {
            return new ApplicationProtocolConnection() {
                @Override
                public void acceptPeerInitiatedStream(QuicStream stream) {
                    threads.execute(() -> answer(stream));
                }
            };
        }

        @Override
        public int maxConcurrentPeerInitiatedBidirectionalStreams() {
            return STREAMS;
        }
    }

    private void answer(QuicStream stream) {
        try {
            byte[] request = stream.getInputStream().readNBytes(MAX_REQUEST);
            String line = new String(request, StandardCharsets.US_ASCII).trim();
            byte[] content = line.startsWith("GET ") ? environment.page(line.substring(4)) : null;
            if (content == null) {
                stream.resetStream(1);
                return;
            }
            try (OutputStream output = stream.getOutputStream()) {
                output.write(content);
            }
        } catch (IOException error) {
            System.err.println("endpoint-kwik: stream " + stream.getStreamId() + ": " + error);
        }
    }
}

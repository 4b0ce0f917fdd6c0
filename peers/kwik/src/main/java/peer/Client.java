package peer;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.URI;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import tech.kwik.agent15.TlsConstants.CipherSuite;
import tech.kwik.core.QuicClientConnection;
import tech.kwik.core.QuicClientConnection.StreamEarlyData;
import tech.kwik.core.QuicConnection.QuicVersion;
import tech.kwik.core.QuicSessionTicket;
import tech.kwik.core.QuicStream;
import tech.kwik.core.impl.QuicClientConnectionImpl;
import tech.kwik.flupke.Http3SingleConnectionClient;

/** Downloads what the runner asks for. */
final class Client {
    /** How long a handshake may take, and a connection be silent: with 30 % loss, some take long. */
    private static final Duration PATIENCE = Duration.ofSeconds(120);

    /** How often, and how many times, to look for a session ticket. */
    private static final Duration TICKET_PAUSE = Duration.ofMillis(10);
    private static final int TICKET_LOOKS = 500;

    /** Requests on a connection at once. */
    private static final int PARALLEL = 100;

    /** Bytes of a download before the keys are updated; the runner wants it within the first megabyte. */
    private static final int BEFORE_KEY_UPDATE = 100_000;

    private final Environment environment;

    Client(Environment environment) {
        this.environment = environment;
    }

    void run() throws Exception {
        List<URI> urls = environment.requests();
        if (urls.isEmpty()) {
            throw new IllegalArgumentException("REQUESTS is empty");
        }
        switch (environment.testCase()) {
            case "multiconnect", "handshakeloss", "handshakecorruption" -> {
                for (URI url : urls) {
                    connected(null, connection -> downloadAll(connection, List.of(url)));
                }
            }
            case "resumption" -> {
                QuicSessionTicket ticket = downloadForTicket(urls);
                connected(ticket, connection -> downloadAll(connection, others(urls)));
            }
            case "zerortt" -> downloadEarly(others(urls), downloadForTicket(urls));
            case "keyupdate" -> connected(null, connection -> {
                for (URI url : urls) {
                    downloadWithKeyUpdate(connection, url);
                }
            });
            case "http3" -> connected(null, connection -> downloadOverHttp3(connection, urls));
            default -> connected(null, connection -> downloadAll(connection, urls));
        }
    }

    private static List<URI> others(List<URI> urls) {
        return urls.subList(1, urls.size());
    }

    /** What is done on a connection. */
    private interface Work {
        void on(QuicClientConnection connection) throws Exception;
    }

    /** Makes a connection, and closes it after the work. */
    private void connected(QuicSessionTicket ticket, Work work) throws Exception {
        opened(ticket, connection -> {
            connection.connect();
            work.on(connection);
        });
    }

    /** Makes a connection without its handshake, and closes it after the work. */
    private void opened(QuicSessionTicket ticket, Work work) throws Exception {
        URI first = environment.requests().get(0);
        QuicClientConnection.Builder builder = QuicClientConnection.newBuilder()
                .host(first.getHost().replaceAll("[\\[\\]]", ""))
                .port(first.getPort() < 0 ? 443 : first.getPort())
                .applicationProtocol(environment.testCase().equals("http3") ? "h3" : Server.HQ)
                .connectTimeout(PATIENCE)
                .maxIdleTimeout(PATIENCE)
                .noServerCertificateCheck();
        switch (environment.testCase()) {
            case "chacha20" -> builder.cipherSuite(CipherSuite.TLS_CHACHA20_POLY1305_SHA256);
            case "v2" -> builder.initialVersion(QuicVersion.V1).preferredVersion(QuicVersion.V2);
            // The server opens its control stream and those of QPACK.
            case "http3" -> builder.maxOpenPeerInitiatedUnidirectionalStreams(3);
            default -> {}
        }
        if (ticket != null) {
            builder.sessionTicket(ticket);
        }
        // Every connection of kwik overwrites the file.
        Path keys = environment.keys() == null ? null : Files.createTempFile("kwik", ".keys");
        if (keys != null) {
            builder.secrets(keys);
        }
        QuicClientConnection connection = builder.build();
        try {
            work.on(connection);
        } finally {
            connection.closeAndWait(Duration.ofSeconds(1));
            if (keys != null) {
                environment.appendKeys(keys);
            }
        }
    }

    /** Downloads the first URL, and returns the ticket that the server sent meanwhile. */
    private QuicSessionTicket downloadForTicket(List<URI> urls) throws Exception {
        List<QuicSessionTicket> tickets = new ArrayList<>();
        connected(null, connection -> {
            downloadAll(connection, urls.subList(0, 1));
            for (int look = 0; look < TICKET_LOOKS && tickets.isEmpty(); look++) {
                tickets.addAll(connection.getNewSessionTickets());
                Thread.sleep(TICKET_PAUSE.toMillis());
            }
        });
        if (tickets.isEmpty()) {
            throw new IOException("the server sent no session ticket");
        }
        return tickets.get(0);
    }

    /** Requests everything as early data. */
    private void downloadEarly(List<URI> urls, QuicSessionTicket ticket) throws Exception {
        opened(ticket, connection -> {
            List<StreamEarlyData> early =
                    urls.stream().map(url -> new StreamEarlyData(request(url), true)).toList();
            List<QuicStream> streams = connection.connect(early);
            for (int at = 0; at < urls.size(); at++) {
                URI url = urls.get(at);
                QuicStream stream = streams.get(at);
                if (stream == null) {
                    // The server allowed fewer streams.
                    download(connection, url);
                } else {
                    Files.write(environment.file(url), stream.getInputStream().readAllBytes());
                }
            }
        });
    }

    private void downloadAll(QuicClientConnection connection, List<URI> urls) throws Exception {
        inParallel(urls, url -> download(connection, url));
    }

    /** What is done with a URL. */
    private interface Download {
        void of(URI url) throws Exception;
    }

    private static void inParallel(List<URI> urls, Download download) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(Math.min(PARALLEL, urls.size()));
        try {
            List<Future<Void>> downloads = new ArrayList<>();
            for (URI url : urls) {
                downloads.add(threads.submit(() -> {
                    download.of(url);
                    return null;
                }));
            }
            for (Future<Void> done : downloads) {
                done.get();
            }
        } catch (ExecutionException error) {
            throw new IOException("download failed", error.getCause());
        } finally {
            threads.shutdownNow();
        }
    }

    private static byte[] request(URI url) {
        return ("GET " + url.getPath() + "\r\n").getBytes(StandardCharsets.US_ASCII);
    }

    private static InputStream ask(QuicClientConnection connection, URI url) throws IOException {
        QuicStream stream = connection.createStream(true);
        try (OutputStream output = stream.getOutputStream()) {
            output.write(request(url));
        }
        return stream.getInputStream();
    }

    private void download(QuicClientConnection connection, URI url) throws IOException {
        try (InputStream input = ask(connection, url)) {
            Files.copy(input, environment.file(url));
        }
    }

    private void downloadWithKeyUpdate(QuicClientConnection connection, URI url) throws IOException {
        try (InputStream input = ask(connection, url);
                OutputStream file = Files.newOutputStream(environment.file(url))) {
            file.write(input.readNBytes(BEFORE_KEY_UPDATE));
            ((QuicClientConnectionImpl) connection).updateKeys();
            input.transferTo(file);
        }
    }

    private void downloadOverHttp3(QuicClientConnection connection, List<URI> urls) throws Exception {
        Http3SingleConnectionClient client =
                new Http3SingleConnectionClient(connection, PATIENCE, 1_000_000L);
        inParallel(urls, url -> {
            HttpRequest request = HttpRequest.newBuilder(url).build();
            HttpResponse<byte[]> response =
                    client.send(request, HttpResponse.BodyHandlers.ofByteArray());
            if (response.statusCode() != 200) {
                throw new IOException("status " + response.statusCode() + " for " + url);
            }
            Files.write(environment.file(url), response.body());
        });
    }
}

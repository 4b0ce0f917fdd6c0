package peer;

import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.List;

/** What the runner asks for: the variables that peers/contract reads. */
record Environment(
        String testCase, List<URI> requests, Path keys, Path www, Path downloads, Path certs, int port) {

    static Environment read() {
        String keys = variable("SSLKEYLOGFILE", "");
        return new Environment(
                variable("TESTCASE", ""),
                Arrays.stream(variable("REQUESTS", "").split("\\s+"))
                        .filter(url -> !url.isEmpty())
                        .map(URI::create)
                        .toList(),
                keys.isEmpty() ? null : Path.of(keys),
                Path.of(variable("WWW", "/www")),
                Path.of(variable("DOWNLOADS", "/downloads")),
                Path.of(variable("CERTS", "/certs")),
                Integer.parseInt(variable("PORT", "443")));
    }

    static String variable(String name, String otherwise) {
        String value = System.getenv(name);
        return value == null || value.isEmpty() ? otherwise : value;
    }

    /** Returns where the content of this URL goes. */
    Path file(URI url) {
        return downloads.resolve(Path.of(url.getPath()).getFileName());
    }

    /** Returns the content at the path of a request, or null if there is none in the directory. */
    byte[] page(String path) throws IOException {
        Path file = www.resolve(path.replaceFirst("^/+", "")).normalize();
        return file.startsWith(www) && Files.isRegularFile(file) ? Files.readAllBytes(file) : null;
    }

    /** Appends the secrets of a connection to those of the others. */
    void appendKeys(Path ofConnection) throws IOException {
        Files.write(
                keys,
                Files.readAllBytes(ofConnection),
                StandardOpenOption.CREATE,
                StandardOpenOption.APPEND);
        Files.delete(ofConnection);
    }
}

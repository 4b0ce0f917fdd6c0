package peer;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.HexFormat;

/** The runner's certificates in the form that Java wants. */
final class Certificates {
    static final String ALIAS = "endpoint";
    static final char[] PASSWORD = "endpoint".toCharArray();

    /** The version of PKCS #8, and the identifiers of ECDSA and P-256 (RFC 5958 §2, RFC 5480 §2.1.1). */
    private static final byte[] P256 =
            HexFormat.of().parseHex("020100301306072a8648ce3d020106082a8648ce3d030107");

    private static final int SEQUENCE = 0x30;
    private static final int OCTET_STRING = 0x04;

    private Certificates() {}

    /** Reads cert.pem, and priv.key in SEC1 form on P-256. */
    static KeyStore read(Path folder) throws IOException, GeneralSecurityException {
        Certificate[] chain;
        try (InputStream file = Files.newInputStream(folder.resolve("cert.pem"))) {
            chain = CertificateFactory.getInstance("X.509")
                    .generateCertificates(file)
                    .toArray(Certificate[]::new);
        }
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, PASSWORD);
        store.setKeyEntry(ALIAS, key(Files.readString(folder.resolve("priv.key"))), PASSWORD, chain);
        return store;
    }

    /** Java knows PKCS #8 only, which has the SEC1 form inside. */
    private static PrivateKey key(String pem) throws IOException, GeneralSecurityException {
        String body = pem.replaceAll("(?s).*-----BEGIN EC PRIVATE KEY-----", "")
                .replaceAll("(?s)-----END EC PRIVATE KEY-----.*", "")
                .replaceAll("\\s", "");
        ByteArrayOutputStream content = new ByteArrayOutputStream();
        content.write(P256);
        content.write(der(OCTET_STRING, Base64.getDecoder().decode(body)));
        byte[] pkcs8 = der(SEQUENCE, content.toByteArray());
        return KeyFactory.getInstance("EC").generatePrivate(new PKCS8EncodedKeySpec(pkcs8));
    }

    private static byte[] der(int tag, byte[] content) throws IOException {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        out.write(tag);
        if (content.length >= 0x80) {
            // A length of one byte: these keys are about 140 bytes long.
            out.write(0x81);
        }
        out.write(content.length);
        out.write(content);
        return out.toByteArray();
    }
}

package susurrus;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** A schema registry with Confluent's interface, which is asked once for each id, and Confluent's framing of records. */
final class Registry {
    /** Bytes before the record: zero, and the schema's id in four bytes. */
    static final int PREFIX = 5;

    private final String url;
    private final HttpClient client = HttpClient.newHttpClient();
    private final Map<Integer, String> schemas = new ConcurrentHashMap<>();

    Registry(String url) {
        this.url = url;
    }

    /** The id of a framed record's schema. */
    static int id(byte[] record) {
        if (record[0] != 0) {
            throw new IllegalArgumentException("the record has another framing");
        }
        return ByteBuffer.wrap(record).getInt(1);
    }

    /** The text of a schema. */
    String schema(int id) {
        return schemas.computeIfAbsent(id, this::fetch);
    }

    private String fetch(int id) {
        HttpRequest request =
                HttpRequest.newBuilder(URI.create(url + "/schemas/ids/" + id)).build();
        try {
            HttpResponse<String> answer = client.send(request, HttpResponse.BodyHandlers.ofString());
            if (answer.statusCode() != 200) {
                throw new IOException("schema " + id + ": the registry answers with status " + answer.statusCode());
            }
            return new ObjectMapper().readTree(answer.body()).get("schema").asText();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}

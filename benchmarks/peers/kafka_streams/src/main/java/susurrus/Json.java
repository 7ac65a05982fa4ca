package susurrus;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.streams.KeyValue;

/** Records of JSON, read by Jackson: by the tree model as the quick start has it, and by the streaming parser from bytes. */
final class Json {
    private static final ObjectMapper TREES = new ObjectMapper();
    private static final JsonFactory PARSERS = new JsonFactory();

    private Json() {}

    /** Key and user, with the tree model. */
    static KeyValue<String, String> tree(String value) {
        Counters.read();
        try {
            JsonNode record = TREES.readTree(value);
            return KeyValue.pair(record.get("k").asText(), record.get("u").asText());
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Key and user, with the streaming parser. from: where the object begins, behind a framing. */
    static KeyValue<String, String> keyed(byte[] value, int from) {
        String key = null;
        String user = null;
        try (JsonParser parser = PARSERS.createParser(value, from, value.length - from)) {
            expect(JsonToken.START_OBJECT, parser.nextToken());
            for (String name = parser.nextFieldName(); name != null; name = parser.nextFieldName()) {
                JsonToken token = parser.nextToken();
                if (name.equals("k")) {
                    key = parser.getText();
                } else if (name.equals("u")) {
                    user = parser.getText();
                } else if (token.isStructStart()) {
                    parser.skipChildren();
                }
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        Counters.read();
        return KeyValue.pair(key, user);
    }

    /** All three fields, with the streaming parser. */
    static Observation observation(byte[] value) {
        try (JsonParser parser = PARSERS.createParser(value)) {
            expect(JsonToken.START_OBJECT, parser.nextToken());
            Observation found = rest(parser, null);
            Counters.read();
            return found;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Key and user of each item, with the streaming parser; the user stands before the items. */
    static List<KeyValue<String, String>> items(byte[] value) {
        List<KeyValue<String, String>> found = new ArrayList<>();
        String user = null;
        try (JsonParser parser = PARSERS.createParser(value)) {
            expect(JsonToken.START_OBJECT, parser.nextToken());
            for (String name = parser.nextFieldName(); name != null; name = parser.nextFieldName()) {
                JsonToken token = parser.nextToken();
                if (name.equals("u")) {
                    user = parser.getText();
                } else if (name.equals("items")) {
                    expect(JsonToken.START_ARRAY, token);
                    while (parser.nextToken() == JsonToken.START_OBJECT) {
                        found.add(KeyValue.pair(rest(parser, user).key(), user));
                        Counters.read();
                    }
                } else if (token.isStructStart()) {
                    parser.skipChildren();
                }
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return found;
    }

    /** What an object says whose beginning has been read. */
    private static Observation rest(JsonParser parser, String outer) throws IOException {
        String key = null;
        String user = outer;
        long number = 0;
        for (String name = parser.nextFieldName(); name != null; name = parser.nextFieldName()) {
            JsonToken token = parser.nextToken();
            if (name.equals("k")) {
                key = parser.getText();
            } else if (name.equals("u")) {
                user = parser.getText();
            } else if (name.equals("v")) {
                number = parser.getLongValue();
            } else if (token.isStructStart()) {
                parser.skipChildren();
            }
        }
        return new Observation(key, user, number);
    }

    private static void expect(JsonToken wanted, JsonToken found) throws IOException {
        if (found != wanted) {
            throw new IOException("found " + found + " instead of " + wanted);
        }
    }
}

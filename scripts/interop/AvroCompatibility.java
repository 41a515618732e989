import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;

/**
 * Says for each pair of Avro schemas on standard input whether the first can read what the second has written, and how
 * Avro prints the two. A line is {"reader": ..., "writer": ...}; the answer has "compatible", and "reader" and "writer"
 * as Schema.toString() gives them, null for a schema that the parser refuses.
 */
public class AvroCompatibility {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode pair = mapper.readTree(line);
            Schema reader = parse(pair.get("reader"));
            Schema writer = parse(pair.get("writer"));
            ObjectNode answer = mapper.createObjectNode();
            answer.put("reader", reader == null ? null : reader.toString());
            answer.put("writer", writer == null ? null : writer.toString());
            answer.put("compatible", reader == null || writer == null ? null : isReadable(reader, writer));
            out.println(mapper.writeValueAsString(answer));
        }
        out.flush();
    }

    private static Boolean isReadable(Schema reader, Schema writer) {
        try {
            return SchemaCompatibility.checkReaderWriterCompatibility(reader, writer).getType()
                == SchemaCompatibility.SchemaCompatibilityType.COMPATIBLE;
        } catch (RuntimeException ambiguous) { // a field whose name and aliases name several
            return false;
        }
    }

    private static Schema parse(JsonNode schema) {
        try {
            return new Schema.Parser().parse(schema.toString());
        } catch (RuntimeException refused) {
            return null;
        }
    }
}

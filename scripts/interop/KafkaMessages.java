// Writes messages with Apache Kafka's own classes: reads lines "class TAB version TAB JSON" and prints each in hex.
//
// The JSON is that of Kafka's generated converters. Records of the metadata log are written with their frame, as
// MetadataRecordSerde does. Started by scripts/interop/wire-golden, with the jars of a Kafka distribution on the class path.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

public class KafkaMessages {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("\t", 3);
            short version = Short.parseShort(parts[1]);
            Class<?> converter = Class.forName(parts[0] + "JsonConverter");
            ApiMessage message = (ApiMessage) converter.getMethod("read", JsonNode.class, short.class)
                .invoke(null, json.readTree(parts[2]), version);
            System.out.println(HexFormat.of().formatHex(write(message, version)));
        }
    }

    private static byte[] write(ApiMessage message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBufferAccessor buffer;
        if (message.getClass().getPackageName().endsWith(".metadata")) {
            ApiMessageAndVersion record = new ApiMessageAndVersion(message, version);
            MetadataRecordSerde serde = new MetadataRecordSerde();
            buffer = new ByteBufferAccessor(ByteBuffer.allocate(serde.recordSize(record, cache)));
            serde.write(record, cache, buffer);
        } else {
            buffer = new ByteBufferAccessor(ByteBuffer.allocate(message.size(cache, version)));
            message.write(buffer, cache, version);
        }
        return buffer.buffer().array();
    }
}

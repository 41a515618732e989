import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.ConfigKey;
import org.apache.kafka.server.config.AbstractKafkaConfig;

/** Prints Kafka's own keys: broker or topic, name, type, default, and whether a running broker can change it. */
public class ConfigKeys {
    public static void main(String[] arguments) throws Exception {
        Set<?> dynamic = (Set<?>) field("org.apache.kafka.server.config.DynamicBrokerConfig", "ALL_DYNAMIC_CONFIGS");
        print("broker", AbstractKafkaConfig.CONFIG_DEF, dynamic);
        print("topic", (ConfigDef) field("org.apache.kafka.storage.internals.log.LogConfig", "CONFIG"), Set.of());
    }

    private static Object field(String type, String name) throws Exception {
        var field = Class.forName(type).getDeclaredField(name);
        field.setAccessible(true);
        return field.get(null);
    }

    private static void print(String scope, ConfigDef definition, Set<?> dynamic) {
        for (String name : new TreeSet<>(definition.configKeys().keySet())) {
            ConfigKey key = definition.configKeys().get(name);
            if (!key.internalConfig) {
                String value = key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : "(must be set)";
                String changes = dynamic.contains(name) ? "dynamic" : "";
                System.out.println(String.join("\t", scope, name, key.type.name(), value == null ? "(none)" : value, changes));
            }
        }
    }
}

// Asks Apache Kafka's own classes for the targets of streams groups and for what topics make of topologies.
//
// Reads lines of JSON and writes one line for each. {"topology", "topics"}: InternalTopicManager on a stored topology and
// the numbers of partitions of the topics that exist. {"subtopologies", "members", "standby_replicas"}: the sticky task
// assignor. {"target", ...}: the next step of a member towards its target. Started by scripts/interop/streams-golden,
// with the jars of a Kafka distribution on the class path.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.api.streams.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.generated.StreamsGroupTopologyValueJsonConverter;
import org.apache.kafka.coordinator.group.streams.CurrentAssignmentBuilder;
import org.apache.kafka.coordinator.group.streams.MemberState;
import org.apache.kafka.coordinator.group.streams.StreamsGroupMember;
import org.apache.kafka.coordinator.group.streams.StreamsTopology;
import org.apache.kafka.coordinator.group.streams.TasksTuple;
import org.apache.kafka.coordinator.group.streams.TasksTupleWithEpochs;
import org.apache.kafka.coordinator.group.streams.TopologyMetadata;
import org.apache.kafka.coordinator.group.streams.assignor.AssignmentConfigsImpl;
import org.apache.kafka.coordinator.group.streams.assignor.GroupSpecImpl;
import org.apache.kafka.coordinator.group.streams.assignor.MemberMetadataAndStateImpl;
import org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor;
import org.apache.kafka.coordinator.group.streams.topics.ConfiguredInternalTopic;
import org.apache.kafka.coordinator.group.streams.topics.ConfiguredSubtopology;
import org.apache.kafka.coordinator.group.streams.topics.ConfiguredTopology;
import org.apache.kafka.coordinator.group.streams.topics.InternalTopicManager;
import org.slf4j.helpers.NOPLogger;

public class StreamsTasks {
    private static final ObjectMapper JSON =
        new ObjectMapper().configure(SerializationFeature.ORDER_MAP_ENTRIES_BY_KEYS, true);

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode question = JSON.readTree(line);
            Object answer = question.has("topology") ? configured(question)
                : question.has("target") ? reconciled(question) : assigned(question);
            System.out.println(JSON.writeValueAsString(answer));
        }
    }

    private static Object reconciled(JsonNode question) {
        StreamsGroupMember member = new StreamsGroupMember.Builder("member")
            .setMemberEpoch(question.get("epoch").intValue()).setPreviousMemberEpoch(question.get("previous").intValue())
            .setState(MemberState.fromValue((byte) question.get("state").intValue())).setProcessId("p")
            .setAssignedTasks(withEpochs(question.get("assigned"))).setTasksPendingRevocation(withEpochs(question.get("pending")))
            .setTopologyEpoch(0).setRebalanceTimeoutMs(1).setClientId("c").setClientHost("h").setClientTags(Map.of()).build();
        CurrentAssignmentBuilder builder = new CurrentAssignmentBuilder(member)
            .withTargetAssignment(question.get("target_epoch").intValue(), tuple(question.get("target")))
            .withCurrentActiveTaskProcessId((id, partition) -> {
                JsonNode process = question.get("active_process").get(id + "-" + partition);
                return process == null ? null : process.asText();
            })
            .withCurrentStandbyTaskProcessIds((id, partition) -> processes(question.get("standby_processes"), id, partition))
            .withCurrentWarmupTaskProcessIds((id, partition) -> processes(question.get("warmup_processes"), id, partition))
            .withOwnedAssignment(question.get("owned").isNull() ? null : tuple(question.get("owned")));
        try {
            StreamsGroupMember next = builder.build();
            return Map.of(
                "epoch", next.memberEpoch(), "previous", next.previousMemberEpoch(), "state", (int) next.state().value(),
                "assigned", shown(next.assignedTasks()), "pending", shown(next.tasksPendingRevocation()));
        } catch (ApiException refusal) {
            return Map.of("error", Errors.forException(refusal).name(), "message", refusal.getMessage());
        }
    }

    private static Set<String> processes(JsonNode listed, String id, int partition) {
        Set<String> processes = new HashSet<>();
        JsonNode found = listed.get(id + "-" + partition);
        if (found != null) {
            found.forEach(process -> processes.add(process.asText()));
        }
        return processes;
    }

    private static TasksTuple tuple(JsonNode listed) {
        return new TasksTuple(tasks(listed.get(0)), tasks(listed.get(1)), tasks(listed.get(2)));
    }

    private static TasksTupleWithEpochs withEpochs(JsonNode listed) {
        Map<String, Map<Integer, Integer>> active = new HashMap<>();
        offsets(listed.get(0)).forEach((id, epochs) -> {
            Map<Integer, Integer> byPartition = new HashMap<>();
            epochs.forEach((partition, epoch) -> byPartition.put(partition, epoch.intValue()));
            active.put(id, byPartition);
        });
        return new TasksTupleWithEpochs(active, tasks(listed.get(1)), tasks(listed.get(2)));
    }

    private static List<Object> shown(TasksTupleWithEpochs tasks) {
        Map<String, Map<Integer, Integer>> active = new TreeMap<>();
        tasks.activeTasksWithEpochs().forEach((id, epochs) -> active.put(id, new TreeMap<>(epochs)));
        return List.of(active, sorted(tasks.standbyTasks()), sorted(tasks.warmupTasks()));
    }

    private static Object configured(JsonNode question) {
        StreamsTopology topology = StreamsTopology.fromRecord(
            StreamsGroupTopologyValueJsonConverter.read(question.get("topology"), (short) 0));
        try {
            return shown(InternalTopicManager.configureTopics(
                NOPLogger.NOP_LOGGER, "group", "member", 0, topology, image(question.get("topics")), Time.SYSTEM));
        } catch (ApiException refusal) {
            return Map.of("error", Errors.forException(refusal).name(), "message", refusal.getMessage());
        }
    }

    private static CoordinatorMetadataImage image(JsonNode topics) {
        return (CoordinatorMetadataImage) Proxy.newProxyInstance(
            StreamsTasks.class.getClassLoader(), new Class<?>[] {CoordinatorMetadataImage.class},
            (proxy, method, arguments) -> {
                if (!method.getName().equals("topicMetadata")) {
                    throw new UnsupportedOperationException(method.getName());
                }
                JsonNode count = topics.get((String) arguments[0]);
                return count == null ? Optional.empty() : Optional.of(topic(count.intValue()));
            });
    }

    private static CoordinatorMetadataImage.TopicMetadata topic(int partitionCount) {
        return (CoordinatorMetadataImage.TopicMetadata) Proxy.newProxyInstance(
            StreamsTasks.class.getClassLoader(), new Class<?>[] {CoordinatorMetadataImage.TopicMetadata.class},
            (proxy, method, arguments) -> partitionCount);
    }

    private static Map<String, Object> shown(ConfiguredTopology configured) {
        Map<String, Object> answer = new TreeMap<>();
        configured.topicConfigurationException().ifPresent(problem -> {
            answer.put("status", problem.status().code());
            answer.put("detail", problem.getMessage());
        });
        configured.subtopologies().ifPresent(subtopologies -> {
            Map<String, Object> all = new TreeMap<>();
            subtopologies.forEach((id, subtopology) -> all.put(id, Map.of(
                "tasks", subtopology.numberOfTasks(),
                "sources", new TreeSet<>(subtopology.sourceTopics()),
                "sinks", new TreeSet<>(subtopology.repartitionSinkTopics()),
                "repartition", internal(subtopology.repartitionSourceTopics()),
                "changelog", internal(subtopology.stateChangelogTopics()))));
            answer.put("subtopologies", all);
        });
        List<Object> topics = new ArrayList<>();
        configured.internalTopicsToBeCreated().values().forEach(topic -> {
            List<List<String>> configs = new ArrayList<>();
            topic.configs().forEach(config -> configs.add(List.of(config.name(), config.value())));
            topics.add(List.of(topic.name(), topic.numPartitions(), topic.replicationFactor(), configs));
        });
        answer.put("create", topics);
        return answer;
    }

    private static Map<String, Integer> internal(Map<String, ConfiguredInternalTopic> topics) {
        Map<String, Integer> counts = new TreeMap<>();
        topics.forEach((name, topic) -> counts.put(name, topic.numberOfPartitions()));
        return counts;
    }

    private static Object assigned(JsonNode question) {
        Map<String, MemberMetadataAndStateImpl> members = new HashMap<>();
        question.get("members").properties().forEach(entry -> {
            JsonNode member = entry.getValue();
            members.put(entry.getKey(), new MemberMetadataAndStateImpl(
                Optional.empty(), Optional.empty(), member.get("process").asText(), Map.of(),
                tasks(member.get("active")), tasks(member.get("standby")), Map.of(), offsets(member.get("offsets")),
                Map.of()));
        });
        TreeMap<String, ConfiguredSubtopology> subtopologies = new TreeMap<>();
        question.get("subtopologies").properties().forEach(entry -> {
            ConfiguredInternalTopic changelog = new ConfiguredInternalTopic("log", 1, Optional.empty(), Map.of());
            subtopologies.put(entry.getKey(), new ConfiguredSubtopology(
                entry.getValue().get("tasks").intValue(), Set.of("source"), Map.of(), Set.of(),
                entry.getValue().get("stateful").booleanValue() ? Map.of("log", changelog) : Map.of()));
        });
        int standbyReplicas = question.get("standby_replicas").intValue();
        GroupAssignment assignment = new StickyTaskAssignor().assign(
            new GroupSpecImpl(members, AssignmentConfigsImpl.DEFAULT.withNumStandbyReplicas(standbyReplicas)),
            new TopologyMetadata(CoordinatorMetadataImage.EMPTY, subtopologies));
        Map<String, Object> answer = new TreeMap<>();
        assignment.members().forEach((id, target) -> answer.put(id, Map.of(
            "active", sorted(target.activeTasks()), "standby", sorted(target.standbyTasks()))));
        return answer;
    }

    private static Map<String, Set<Integer>> tasks(JsonNode listed) {
        Map<String, Set<Integer>> tasks = new HashMap<>();
        listed.properties().forEach(entry -> {
            Set<Integer> partitions = new HashSet<>();
            entry.getValue().forEach(partition -> partitions.add(partition.intValue()));
            tasks.put(entry.getKey(), partitions);
        });
        return tasks;
    }

    private static Map<String, Map<Integer, Long>> offsets(JsonNode listed) {
        Map<String, Map<Integer, Long>> offsets = new HashMap<>();
        listed.properties().forEach(entry -> {
            Map<Integer, Long> byPartition = new HashMap<>();
            entry.getValue().properties().forEach(one ->
                byPartition.put(Integer.valueOf(one.getKey()), one.getValue().longValue()));
            offsets.put(entry.getKey(), byPartition);
        });
        return offsets;
    }

    private static Map<String, TreeSet<Integer>> sorted(Map<String, Set<Integer>> tasks) {
        Map<String, TreeSet<Integer>> sorted = new TreeMap<>();
        tasks.forEach((id, partitions) -> sorted.put(id, new TreeSet<>(partitions)));
        return sorted;
    }
}

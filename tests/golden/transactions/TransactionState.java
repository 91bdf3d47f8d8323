// Records values of __transaction_state and transitions of transactional ids, as Apache Kafka makes
// them. Run it with `java -cp "KAFKA/libs/*" TransactionState.java > kafka-4.4.0.txt`.

import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Optional;
import java.util.Set;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.coordinator.transaction.TransactionLog;
import org.apache.kafka.coordinator.transaction.TransactionMetadata;
import org.apache.kafka.coordinator.transaction.TxnTransitMetadata;
import org.apache.kafka.server.common.TransactionVersion;

import static org.apache.kafka.coordinator.transaction.TransactionState.*;

public class TransactionState {
    static final long ID = 1000, PREVIOUS = 999, NEW = 2000, START = 50_000, NOW = 60_000;
    static final TopicPartition OLD = new TopicPartition("topic-a", 3);
    static final TopicPartition ADDED = new TopicPartition("topic-b", 0);
    static final List<org.apache.kafka.coordinator.transaction.TransactionState> STATES =
        List.of(EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT);
    static final List<org.apache.kafka.coordinator.transaction.TransactionState> IDLE =
        List.of(EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT);

    interface Step { TxnTransitMetadata of(TransactionMetadata txn); }

    static TransactionVersion version(int level) {
        return TransactionVersion.fromFeatureLevel((short) level);
    }

    static Set<TopicPartition> partitions(org.apache.kafka.coordinator.transaction.TransactionState state) {
        return IDLE.contains(state) ? Set.of() : Set.of(OLD);
    }

    static void records() {
        HexFormat hex = HexFormat.of();
        System.out.println("key my-tid " + hex.formatHex(TransactionLog.keyToBytes("my-tid")));
        for (int level = 0; level < 3; level++)
            for (var state : STATES)
                for (int client = 0; client <= (level == 0 ? 0 : 2); client += 2) {
                    boolean prepared = state == PREPARE_COMMIT || state == PREPARE_ABORT;
                    long next = client == 2 && prepared ? NEW : -1;
                    var txn = new TxnTransitMetadata(ID, PREVIOUS, next, (short) 7, (short) 6, 60_000, state,
                        new HashSet<>(partitions(state)), state == EMPTY ? -1 : START, NOW, version(client));
                    byte[] value = TransactionLog.valueToBytes(txn, version(level));
                    System.out.printf("value %d %s %d %d %s%n",
                        level, state.stateName(), client, next, hex.formatHex(value));
                }
    }

    static void step(String name, org.apache.kafka.coordinator.transaction.TransactionState state,
                     int epoch, int last, long next, int client, Step step) {
        var txn = new TransactionMetadata("t", ID, PREVIOUS, next, (short) epoch, (short) last, 30_000, state,
            new HashSet<>(partitions(state)), state == EMPTY ? -1 : START, START, version(client));
        String after;
        try {
            TxnTransitMetadata m = step.of(txn);
            after = String.join(" ", "" + m.producerId(), "" + m.prevProducerId(), "" + m.nextProducerId(),
                "" + m.producerEpoch(), "" + m.lastProducerEpoch(), "" + m.txnTimeoutMs(),
                m.txnState().stateName(), "" + m.topicPartitions().size(), "" + m.txnStartTimestamp(),
                "" + m.txnLastUpdateTimestamp(), "" + m.clientTransactionVersion().featureLevel());
        } catch (RuntimeException error) {
            after = error.getClass().getSimpleName();
        }
        System.out.printf("step %s %s %d %d %d %d -> %s%n",
            name, state.stateName(), epoch, last, next, client, after);
    }

    static TxnTransitMetadata init(TransactionMetadata txn, int named) {
        Optional<Short> expected = named < 0 ? Optional.empty() : Optional.of((short) named);
        if (txn.isProducerEpochExhausted() && (named < 0 || named == txn.producerEpoch()))
            return txn.prepareProducerIdRotation(NEW, 20_000, NOW, named >= 0);
        return txn.prepareIncrementProducerEpoch(20_000, expected, NOW);
    }

    static long nextId(TransactionMetadata txn, int client) {
        return client == 2 && txn.isProducerEpochExhausted() ? NEW : -1;
    }

    static TxnTransitMetadata fence(TransactionMetadata txn, int level) {
        TxnTransitMetadata fenced = txn.prepareFenceProducerEpoch();
        long next = nextId(txn, level);
        txn.pendingState(Optional.empty());
        if (level < 2) {
            txn.setProducerEpoch(fenced.producerEpoch());
            txn.setLastProducerEpoch((short) -1);
        }
        return txn.prepareAbortOrCommit(PREPARE_ABORT, version(level < 2 ? 0 : level), next, NOW, false);
    }

    public static void main(String[] args) {
        records();
        for (int epoch : new int[] {0, 7, 32_765, 32_766, 32_767})
            for (int last : epoch == 0 ? new int[] {-1} : new int[] {-1, epoch - 1}) {
                for (var state : IDLE)
                    for (int named : new int[] {-1, epoch, epoch - 1, 3})
                        step("init:" + named, state, epoch, last, -1, 2, txn -> init(txn, named));
                for (int client = 0; client <= 2; client += 2) {
                    int c = client;
                    for (var state : STATES)
                        if (state == ONGOING || IDLE.contains(state))
                            step("add:" + c, state, epoch, last, -1, 0, txn ->
                                txn.prepareAddPartitions(Set.of(ADDED), NOW, version(c)));
                    step("commit:" + c, ONGOING, epoch, last, -1, 0, txn ->
                        txn.prepareAbortOrCommit(PREPARE_COMMIT, version(c), nextId(txn, c), NOW, false));
                    step("abort:" + c, ONGOING, epoch, last, -1, 0, txn ->
                        txn.prepareAbortOrCommit(PREPARE_ABORT, version(c), nextId(txn, c), NOW, false));
                    step("fence:" + c, ONGOING, epoch, last, -1, 2, txn -> fence(txn, c));
                    for (long next : new long[] {-1, NEW})
                        for (var state : List.of(PREPARE_COMMIT, PREPARE_ABORT))
                            step("complete", state, epoch, last, next, c, txn -> txn.prepareComplete(NOW));
                }
                for (var state : IDLE)
                    step("abort:2", state, epoch, last, -1, 0, txn ->
                        txn.prepareAbortOrCommit(PREPARE_ABORT, version(2), nextId(txn, 2), NOW, true));
            }
    }
}

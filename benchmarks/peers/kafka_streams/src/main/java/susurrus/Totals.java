package susurrus;

import java.nio.ByteBuffer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;

/** A count and a sum, in sixteen bytes. */
record Totals(long count, double sum) {
    static final Totals NONE = new Totals(0, 0.0);

    static final Serde<Totals> SERDE = Serdes.serdeFrom(
            (topic, totals) -> totals == null
                    ? null
                    : ByteBuffer.allocate(16)
                            .putLong(totals.count)
                            .putDouble(totals.sum)
                            .array(),
            (topic, data) -> data == null
                    ? null
                    : new Totals(ByteBuffer.wrap(data).getLong(), ByteBuffer.wrap(data).getDouble(8)));

    Totals plus(double value) {
        return new Totals(count + 1, sum + value);
    }
}

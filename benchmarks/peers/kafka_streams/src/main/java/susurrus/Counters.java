package susurrus;

import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;

/** When the first record was read, and how many were: what a run reports. */
final class Counters {
    private static final AtomicLong STARTED = new AtomicLong();
    /** Records, or items where records are lists of them. */
    static final LongAdder READ = new LongAdder();

    static final LongAdder FILTERED = new LongAdder();

    private Counters() {}

    /** To be called for each record or item, when it has been decoded. */
    static void read() {
        if (STARTED.get() == 0) {
            STARTED.compareAndSet(0, System.nanoTime());
        }
        READ.increment();
    }

    /** Seconds since the first record was read. */
    static double seconds() {
        return (System.nanoTime() - STARTED.get()) / 1e9;
    }
}

package recipes;

import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

/** Runs the statements of a file, as Flink's SQL client does, in a cluster inside this process. Argument: the file. */
public final class RunSql {
    private RunSql() {}

    public static void main(String[] arguments) throws Exception {
        TableEnvironment environment = TableEnvironment.create(EnvironmentSettings.inBatchMode());
        environment.getConfig().set("table.local-time-zone", "UTC");
        environment.getConfig().set("parallelism.default", "1");
        for (String statement : Files.readString(Path.of(arguments[0])).split(";\n")) {
            if (!statement.isBlank()) {
                environment.executeSql(statement).print();
            }
        }
    }
}

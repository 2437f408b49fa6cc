import io.kroxylicious.proxy.KafkaProxy;
import io.kroxylicious.proxy.config.ConfigParser;
import io.kroxylicious.proxy.internal.config.Features;
import java.nio.file.Files;
import java.nio.file.Path;

/** Runs Kroxylicious with a settings file until the process is ended. */
public class Kroxylicious {
  public static void main(String[] arguments) throws Exception {
    var parser = new ConfigParser();
    var settings = parser.parseConfiguration(Files.readString(Path.of(arguments[0])));
    try (var proxy = new KafkaProxy(parser, settings, Features.defaultFeatures())) {
      proxy.startup().block();
    }
  }
}

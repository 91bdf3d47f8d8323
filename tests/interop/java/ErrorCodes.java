import org.apache.kafka.common.protocol.Errors;

/** Prints each error code of Kafka's client library on a line: code, name. */
public class ErrorCodes {
  public static void main(String[] args) {
    for (Errors error : Errors.values()) {
      System.out.println(error.code() + " " + error.name());
    }
  }
}

import java.util.HashMap;
import java.util.Map;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.rest.RESTCatalog;

/** A few requests to the catalog at args[0], warehouse args[1], signed with the access key args[2] and its secret args[3]. */
public class SigningClient {
  public static void main(String[] args) throws Exception {
    Namespace namespace = Namespace.of("a", "b é");
    try (RESTCatalog catalog = new RESTCatalog()) {
      catalog.initialize(
          "lake",
          Map.of(
              "uri", args[0],
              "warehouse", args[1],
              "rest.auth.type", "sigv4",
              "rest.auth.sigv4.delegate-auth-type", "oauth2",
              "rest.signing-region", "us-east-1",
              "rest.access-key-id", args[2],
              "rest.secret-access-key", args[3],
              "token", "a-token-of-another-login"));
      catalog.createNamespace(namespace, new HashMap<>(Map.of("owner", "alice")));
      catalog.listNamespaces(namespace);
      catalog.listTables(namespace);
      catalog.dropNamespace(namespace);
    }
  }
}

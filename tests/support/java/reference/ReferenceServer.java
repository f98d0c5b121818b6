package org.apache.iceberg.rest;

import java.lang.reflect.Field;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.hadoop.HadoopFileIO;
import org.apache.iceberg.inmemory.InMemoryCatalog;
import org.eclipse.jetty.compression.gzip.GzipCompression;
import org.eclipse.jetty.compression.server.CompressionHandler;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.http.UriCompliance;
import org.eclipse.jetty.server.HttpConfiguration;
import org.eclipse.jetty.server.HttpConnectionFactory;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

/**
 * Iceberg's REST handlers behind Jetty on a free port of the loopback address; prints "listening on
 * http://…" when it answers. Each argument is a catalog property, key=value.
 *
 * <p>Iceberg's own main class listens on every address of the machine and lets Jetty refuse the
 * escaped separators that nested namespaces need, so only its servlet and adapter are used.
 */
public final class ReferenceServer {
  public static void main(String[] arguments) throws Exception {
    Map<String, String> properties =
        Stream.of(arguments)
            .map(argument -> argument.split("=", 2))
            .collect(Collectors.toMap(pair -> pair[0], pair -> pair[1]));
    Configuration hadoop = new Configuration();
    Catalog catalog = CatalogUtil.buildIcebergCatalog("reference", properties, hadoop);
    if (catalog instanceof InMemoryCatalog) {
      keepFilesOnDisk((InMemoryCatalog) catalog, hadoop);
    }

    Server server = new Server();
    ServerConnector connector = loopbackConnector(server);
    server.addConnector(connector);
    server.setHandler(handler(catalog));
    server.start();
    System.out.println("listening on http://127.0.0.1:" + connector.getLocalPort());
    server.join();
  }

  private static ServerConnector loopbackConnector(Server server) {
    HttpConfiguration anyPath = new HttpConfiguration();
    anyPath.setUriCompliance(UriCompliance.UNSAFE);
    ServerConnector connector = new ServerConnector(server, new HttpConnectionFactory(anyPath));
    connector.setHost("127.0.0.1");
    connector.setPort(0);
    return connector;
  }

  private static ServletContextHandler handler(Catalog catalog) {
    ServletContextHandler context = new ServletContextHandler();
    context.getServletHandler().setDecodeAmbiguousURIs(true);
    context.addServlet(
        new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
    // The Java client sends its bodies compressed.
    CompressionHandler compression = new CompressionHandler();
    compression.putCompression(new GzipCompression());
    context.insertHandler(compression);
    return context;
  }

  /** The in-memory catalog holds its files in memory too, where no client could register or read them. */
  private static void keepFilesOnDisk(InMemoryCatalog catalog, Configuration hadoop)
      throws ReflectiveOperationException {
    Field io = InMemoryCatalog.class.getDeclaredField("io");
    io.setAccessible(true);
    io.set(catalog, new HadoopFileIO(hadoop));
  }

  private ReferenceServer() {}
}

import java.net.InetSocketAddress;
import java.security.Security;
import java.util.Map;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.NameCallback;
import javax.security.auth.callback.PasswordCallback;
import javax.security.sasl.AuthorizeCallback;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore.HMSHandler;
import org.apache.hadoop.hive.metastore.RetryingHMSHandler;
import org.apache.hadoop.hive.metastore.TSetIpAddressProcessor;
import org.apache.hadoop.hive.metastore.api.ThriftHiveMetastore;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;
import org.apache.hive.service.auth.PlainSaslServer;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.server.TServer;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TSaslServerTransport;
import org.apache.thrift.transport.TServerSocket;
import org.apache.thrift.transport.TTransportFactory;

/**
 * A Hive metastore that listens on this machine alone and says where; its own main class listens everywhere.
 * All of it is in the jars that PySpark brings, so nothing is resolved: java -cp 'pyspark/jars/*' Metastore.java FOLDER
 * With USER and PASSWORD behind FOLDER it wants SASL PLAIN.
 */
public class Metastore {
  public static void main(String[] arguments) throws Exception {
    String folder = arguments[0];
    HiveConf conf = new HiveConf();
    conf.setVar(HiveConf.ConfVars.METASTORECONNECTURLKEY, "jdbc:derby:;databaseName=" + folder + "/database;create=true");
    conf.setVar(HiveConf.ConfVars.METASTOREWAREHOUSE, "file:" + folder + "/warehouse");
    conf.set("datanucleus.schema.autoCreateAll", "true");
    conf.set("hive.metastore.schema.verification", "false");
    conf.set("hive.async.log.enabled", "false");
    conf.set("datanucleus.connectionPoolingType", "NONE"); // the default pool is not in these jars: locks would hang
    TxnDbUtil.prepDb(conf); // the tables of the locks, which every commit of Iceberg takes

    ThriftHiveMetastore.Iface handler = RetryingHMSHandler.getProxy(conf, new HMSHandler("tests", conf, true), true);
    TServerSocket socket = new TServerSocket(new InetSocketAddress("127.0.0.1", 0));
    TServer server =
        new TThreadPoolServer(
            new TThreadPoolServer.Args(socket)
                .processor(new TSetIpAddressProcessor<>(handler))
                .protocolFactory(new TBinaryProtocol.Factory())
                .transportFactory(arguments.length > 2 ? sasl(arguments[1], arguments[2]) : new TTransportFactory())
                .minWorkerThreads(2)
                .maxWorkerThreads(32));
    System.out.println("listening on thrift://127.0.0.1:" + socket.getServerSocket().getLocalPort());
    System.out.flush();
    server.serve();
  }

  private static TTransportFactory sasl(String user, String password) {
    Security.addProvider(new PlainSaslServer.SaslPlainProvider());
    TSaslServerTransport.Factory factory = new TSaslServerTransport.Factory();
    factory.addServerDefinition("PLAIN", "NONE", "localhost", Map.of(), callbacks -> check(callbacks, user, password));
    return factory;
  }

  private static void check(Callback[] callbacks, String user, String password) {
    boolean isKnown = true;
    for (Callback callback : callbacks) {
      if (callback instanceof NameCallback given) {
        isKnown &= user.equals(given.getName() == null ? given.getDefaultName() : given.getName());
      } else if (callback instanceof PasswordCallback given) {
        isKnown &= password.equals(new String(given.getPassword()));
      } else if (callback instanceof AuthorizeCallback decision) {
        decision.setAuthorized(isKnown);
      }
    }
  }
}

import java.net.InetSocketAddress;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore.HMSHandler;
import org.apache.hadoop.hive.metastore.RetryingHMSHandler;
import org.apache.hadoop.hive.metastore.TSetIpAddressProcessor;
import org.apache.hadoop.hive.metastore.api.ThriftHiveMetastore;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.server.TServer;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TServerSocket;

/**
 * A Hive metastore that listens on this machine alone and says where; its own main class listens everywhere.
 * All of it is in the jars that PySpark brings, so nothing is resolved: java -cp 'pyspark/jars/*' Metastore.java FOLDER
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
                .minWorkerThreads(2)
                .maxWorkerThreads(32));
    System.out.println("listening on thrift://127.0.0.1:" + socket.getServerSocket().getLocalPort());
    System.out.flush();
    server.serve();
  }
}

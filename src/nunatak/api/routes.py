"""The route table of the catalog API: each URL with its handler and the privilege it requires."""
# ruff: noqa: E501 - one line for each URL, and one for its OpenAPI description

from nunatak.access.privileges import Privilege, Securable
from nunatak.api import namespaces, oauth, remote_signing, required_privileges, service, storage_access, tables, views
from nunatak.api.route import ANY_BODY, REPORT_BODY, SIGN_BODY, SMALL_BODY, Operation, Route
from nunatak.api.wire import (
    CreateNamespaceRequest,
    CreateTableRequest,
    CreateViewRequest,
    ErrorResponse,
    KeySet,
    MetricsReport,
    RegisterTableRequest,
    RegisterViewRequest,
    RemoteSignRequest,
    RenameRequest,
    TokenError,
    TokenRequest,
    TokenResponse,
    UpdateNamespaceRequest,
)
from nunatak.iceberg.commit_request import CommitTableRequest, CommitTransactionRequest
from nunatak.iceberg.view_commit import CommitViewRequest

P, S = Privilege, Securable
NS = "/v1/{prefix}/namespaces"
ONE_NS = NS + "/{namespace}"
TABLES = ONE_NS + "/tables"
ONE_TABLE = TABLES + "/{table}"
VIEWS = ONE_NS + "/views"
ONE_VIEW = VIEWS + "/{view}"
PAGE, ETAG, DELEGATION = ("pageToken", "pageSize"), ("ETag",), ("X-Iceberg-Access-Delegation",)

ROUTES: tuple[Route, ...] = (
    Route("getConfig", "GET", "/v1/config", service.get_config, P.CONFIG_READ, S.SERVER, "Configuration for a client", False, needs=required_privileges.to_configure,
          described=Operation(tag="Configuration", query=("warehouse",), errors=(404,))),
    Route("listNamespaces", "GET", NS, namespaces.list_namespaces, P.NS_LIST, S.WAREHOUSE, "List namespaces", needs=required_privileges.to_list_namespaces,
          described=Operation(tag="Namespaces", query=("parent", *PAGE), errors=(404,))),
    Route("createNamespace", "POST", NS, namespaces.create_namespace, P.NS_CREATE, S.WAREHOUSE, "Create a namespace", needs=required_privileges.to_create_namespace, body_bytes=ANY_BODY,
          described=Operation(tag="Namespaces", request=CreateNamespaceRequest, errors=(404, 409))),
    Route("loadNamespaceMetadata", "GET", ONE_NS, namespaces.load_namespace, P.NS_LIST, S.NAMESPACE, "Load a namespace",
          described=Operation(tag="Namespaces", errors=(404,))),
    Route("namespaceExists", "HEAD", ONE_NS, namespaces.namespace_exists, P.NS_LIST, S.NAMESPACE, "Whether a namespace exists",
          described=Operation(tag="Namespaces", errors=(404,))),
    Route("dropNamespace", "DELETE", ONE_NS, namespaces.drop_namespace, P.NS_DROP, S.NAMESPACE, "Drop an empty namespace", body_bytes=SMALL_BODY,
          described=Operation(tag="Namespaces", errors=(404, 409))),
    Route("updateProperties", "POST", ONE_NS + "/properties", namespaces.update_namespace, P.NS_UPDATE, S.NAMESPACE,
          "Set and remove properties of a namespace", needs=required_privileges.to_update_namespace, body_bytes=ANY_BODY,
          described=Operation(tag="Namespaces", request=UpdateNamespaceRequest, errors=(404, 409))),
    Route("listTables", "GET", TABLES, tables.list_tables, P.TABLE_LIST, S.NAMESPACE, "List tables", needs=required_privileges.to_list_entries,
          described=Operation(tag="Tables", query=PAGE, errors=(404,))),
    Route("createTable", "POST", TABLES, tables.create_table, P.TABLE_CREATE, S.NAMESPACE, "Create or stage a table", needs=required_privileges.to_create_table, body_bytes=ANY_BODY,
          described=Operation(tag="Tables", request=CreateTableRequest, request_headers=DELEGATION, response_headers=ETAG, errors=(404, 409))),
    Route("registerTable", "POST", ONE_NS + "/register", tables.register_table, P.LOCATION_CHOOSE, S.NAMESPACE,
          "Register a table from its metadata file", needs=required_privileges.to_register, body_bytes=SMALL_BODY,
          described=Operation(tag="Tables", request=RegisterTableRequest, request_headers=DELEGATION, response_headers=ETAG, errors=(404, 409))),
    Route("loadTable", "GET", ONE_TABLE, tables.load_table, P.TABLE_READ_META, S.TABLE, "Load a table", reads_pointer=True,
          described=Operation(tag="Tables", query=("snapshots",), request_headers=("If-None-Match", "X-Iceberg-Access-Delegation"), response_headers=ETAG, errors=(404,), not_modified=True)),
    Route("tableExists", "HEAD", ONE_TABLE, tables.table_exists, P.TABLE_READ_META, S.TABLE, "Whether a table exists",
          described=Operation(tag="Tables", errors=(404,))),
    Route("updateTable", "POST", ONE_TABLE, tables.commit_table, P.TABLE_WRITE, S.TABLE, "Commit updates to a table", needs=required_privileges.to_commit, reads_pointer=True, body_bytes=ANY_BODY,
          described=Operation(tag="Tables", request=CommitTableRequest, response_headers=ETAG, errors=(404, 409))),
    Route("dropTable", "DELETE", ONE_TABLE, tables.drop_table, P.TABLE_DROP, S.TABLE, "Drop a table", body_bytes=SMALL_BODY,
          described=Operation(tag="Tables", query=("purgeRequested",), errors=(404, 409))),
    Route("unregisterTable", "POST", ONE_TABLE + "/unregister", tables.unregister_table, P.TABLE_DROP, S.TABLE,
          "Unregister a table and keep its files", needs=required_privileges.with_answer, body_bytes=SMALL_BODY,
          described=Operation(tag="Tables", errors=(404, 409))),
    Route("loadCredentials", "GET", ONE_TABLE + "/credentials", storage_access.load_credentials, P.TABLE_READ_DATA, S.TABLE, "Get a credential for the files of a table", needs=required_privileges.to_load_credentials, reads_pointer=True,
          described=Operation(tag="Tables", query=("planId", "referenced-by"), errors=(404,))),
    Route("signRequest", "POST", ONE_TABLE + "/sign", remote_signing.sign_request, P.TABLE_READ_META, S.TABLE, "Sign a request to the store of a table", needs=required_privileges.to_load_credentials, reads_pointer=True, body_bytes=SIGN_BODY,
          described=Operation(tag="Tables", request=RemoteSignRequest, errors=(404,))),
    Route("reportMetrics", "POST", ONE_TABLE + "/metrics", tables.report_metrics, P.TABLE_READ_META, S.TABLE,
          "Report metrics of a scan or commit", body_bytes=REPORT_BODY,
          described=Operation(tag="Tables", request=MetricsReport, errors=(404,))),
    Route("renameTable", "POST", "/v1/{prefix}/tables/rename", tables.rename_table, P.TABLE_ALTER, S.WAREHOUSE, "Rename a table", needs=required_privileges.to_rename, body_bytes=SMALL_BODY,
          described=Operation(tag="Tables", request=RenameRequest, errors=(404, 409))),
    Route("commitTransaction", "POST", "/v1/{prefix}/transactions/commit", tables.commit_transaction, P.TABLE_WRITE,
          S.WAREHOUSE, "Commit to several tables at once", needs=required_privileges.to_commit_transaction, body_bytes=ANY_BODY,
          described=Operation(tag="Tables", request=CommitTransactionRequest, errors=(404, 409))),
    Route("listViews", "GET", VIEWS, views.list_views, P.TABLE_LIST, S.NAMESPACE, "List views", needs=required_privileges.to_list_entries,
          described=Operation(tag="Views", query=PAGE, errors=(404,))),
    Route("createView", "POST", VIEWS, views.create_view, P.TABLE_CREATE, S.NAMESPACE, "Create a view", needs=required_privileges.to_create_view, body_bytes=ANY_BODY,
          described=Operation(tag="Views", request=CreateViewRequest, response_headers=ETAG, errors=(404, 409))),
    Route("registerView", "POST", ONE_NS + "/register-view", views.register_view, P.LOCATION_CHOOSE, S.NAMESPACE,
          "Register a view from its metadata file", needs=required_privileges.to_register, body_bytes=SMALL_BODY,
          described=Operation(tag="Views", request=RegisterViewRequest, response_headers=ETAG, errors=(404, 409))),
    Route("loadView", "GET", ONE_VIEW, views.load_view, P.TABLE_READ_META, S.VIEW, "Load a view",
          described=Operation(tag="Views", request_headers=("If-None-Match",), response_headers=ETAG, errors=(404,), not_modified=True)),
    Route("viewExists", "HEAD", ONE_VIEW, views.view_exists, P.TABLE_READ_META, S.VIEW, "Whether a view exists",
          described=Operation(tag="Views", errors=(404,))),
    Route("replaceView", "POST", ONE_VIEW, views.commit_view, P.TABLE_WRITE, S.VIEW, "Commit updates to a view", needs=required_privileges.to_replace_view, body_bytes=ANY_BODY,
          described=Operation(tag="Views", request=CommitViewRequest, response_headers=ETAG, errors=(404, 409))),
    Route("dropView", "DELETE", ONE_VIEW, views.drop_view, P.TABLE_DROP, S.VIEW, "Drop a view", body_bytes=SMALL_BODY,
          described=Operation(tag="Views", errors=(404, 409))),
    Route("renameView", "POST", "/v1/{prefix}/views/rename", views.rename_view, P.TABLE_ALTER, S.WAREHOUSE, "Rename a view", needs=required_privileges.to_rename, body_bytes=SMALL_BODY,
          described=Operation(tag="Views", request=RenameRequest, errors=(404, 409))),
    Route("search", "GET", "/v1/{prefix}/search", service.search, P.TABLE_LIST, S.WAREHOUSE, "Find tables and views by name", needs=required_privileges.to_search,
          described=Operation(tag="Search", query=("query", "type", *PAGE), errors=(404,))),
    Route("getToken", "POST", "/v1/oauth/tokens", oauth.post_token, P.PUBLIC, S.SERVER, "Get or exchange an access token", False, body_bytes=SMALL_BODY,
          described=Operation(tag="Tokens", request=TokenRequest, request_media_type="application/x-www-form-urlencoded", response=TokenResponse, refusals=(TokenError, ErrorResponse), errors=(401, 404))),
    Route("explainToken", "GET", "/v1/oauth/tokens", oauth.explain_token, P.PUBLIC, S.SERVER, "Describe how to get a token", False,
          described=Operation(tag="Tokens", succeeds=False, errors=(405,))),
    Route("getKeys", "GET", "/.well-known/jwks.json", oauth.get_keys, P.PUBLIC, S.SERVER, "Keys that tokens are signed with", False,
          described=Operation(tag="Tokens", response=KeySet, errors=(404,))),
    Route("welcome", "GET", "/", service.welcome, P.PUBLIC, S.SERVER, "The welcome page with links", False,
          described=Operation(tag="Operations")),
    Route("health", "GET", "/health", service.health, P.PUBLIC, S.SERVER, "Whether the process is alive", False, always=True,
          described=Operation(tag="Operations")),
    Route("ready", "GET", "/ready", service.ready, P.PUBLIC, S.SERVER, "Whether requests can be served", False, always=True,
          described=Operation(tag="Operations")),
    Route("metrics", "GET", "/metrics", service.metrics, P.PUBLIC, S.SERVER, "Prometheus metrics", False,
          described=Operation(tag="Operations", response=str, media_type="text/plain")),
)  # fmt: skip


def endpoints() -> list[str]:
    """Returns the `endpoints` of /v1/config: the routes above, as the Iceberg REST specification writes them."""
    return [f"{route.method} {route.template}" for route in ROUTES if route.endpoint]

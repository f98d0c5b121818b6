package org.apache.iceberg.rest;

import java.util.ArrayDeque;
import java.util.Deque;
import org.apache.iceberg.catalog.Namespace;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/**
 * The table suite of the kit with three doors open that the published class keeps shut and offers no
 * switch for: nested namespaces, names with slashes, and a location of its own for every table.
 */
public class OpenedKitTests extends RESTCompatibilityKitCatalogTests {
  @Override
  protected boolean supportsNestedNamespaces() {
    return true;
  }

  @Override
  protected boolean supportsNamesWithSlashes() {
    return true;
  }

  /** Declared again because the annotation that disables it is not inherited. */
  @Test
  @Override
  public void createTableInUniqueLocation() {
    super.createTableInUniqueLocation();
  }

  /** The kit tidies up a fixed list of top-level namespaces only; these tests make others. */
  @BeforeEach
  @AfterEach
  void emptyTheCatalog() {
    Deque<Namespace> found = new ArrayDeque<>(catalog().listNamespaces());
    Deque<Namespace> deepestFirst = new ArrayDeque<>();
    while (!found.isEmpty()) {
      Namespace namespace = found.pop();
      deepestFirst.push(namespace);
      found.addAll(catalog().listNamespaces(namespace));
    }
    for (Namespace namespace : deepestFirst) {
      catalog().listTables(namespace).forEach(table -> catalog().dropTable(table, false));
      catalog().listViews(namespace).forEach(catalog()::dropView);
      catalog().dropNamespace(namespace);
    }
  }
}

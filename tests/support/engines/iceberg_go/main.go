// Reads a table (id, city) of a REST catalog, appends the row it is given, and prints all rows before and after.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/iceberg-go/catalog/rest"
	_ "github.com/apache/iceberg-go/io/gocloud/s3"
	"github.com/apache/iceberg-go/table"
)

func main() {
	if len(os.Args) != 5 {
		fail(fmt.Errorf("usage: URI NAMESPACE.TABLE ID CITY"))
	}
	id, err := strconv.ParseInt(os.Args[3], 10, 64)
	check(err)
	ctx := context.Background()
	catalog, err := rest.NewCatalog(ctx, "lake", os.Args[1])
	check(err)
	loaded, err := catalog.LoadTable(ctx, strings.Split(os.Args[2], "."))
	check(err)
	before := rows(ctx, loaded)
	loaded = add(ctx, loaded, id, os.Args[4])
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{"before": before, "after": rows(ctx, loaded)}))
}

func add(ctx context.Context, loaded *table.Table, id int64, city string) *table.Table {
	schema, err := table.SchemaToArrowSchema(loaded.Schema(), nil, true, false)
	check(err)
	row, err := json.Marshal([]map[string]any{{"id": id, "city": city}})
	check(err)
	added, err := array.TableFromJSON(memory.DefaultAllocator, schema, []string{string(row)})
	check(err)
	defer added.Release()
	changed, err := loaded.AppendTable(ctx, added, 1, nil)
	check(err)
	return changed
}

func rows(ctx context.Context, loaded *table.Table) [][]any {
	read, err := loaded.Scan().ToArrowTable(ctx)
	check(err)
	defer read.Release()
	found := [][]any{}
	reader := array.NewTableReader(read, 0)
	defer reader.Release()
	for reader.Next() {
		batch := reader.RecordBatch()
		for at := range int(batch.NumRows()) {
			id := batch.Column(0).(*array.Int64).Value(at)
			found = append(found, []any{id, batch.Column(1).ValueStr(at)})
		}
	}
	return found
}

func check(err error) {
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

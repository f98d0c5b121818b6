"""What each update changes about a table; snapshots and references have their own page."""

import pytest
from msgspec.structs import replace

from nunatak.errors import BadRequest, CommitFailed, IllegalArgument, InvalidMetadata
from tests.unit.iceberg.builders import (
    NOW_MS,
    UUID,
    Json,
    a_creation,
    a_field,
    a_schema,
    a_spec,
    a_table,
    add_snapshot,
    an_order,
    append,
    commit,
    default_order,
    requirement,
    set_ref,
    update,
)

WIDER = a_schema(*a_schema()["fields"], a_field(4, "n", "int"), schema_id=17)


def refusal(table: object, *changes: Json) -> str:
    with pytest.raises(BadRequest) as refused:
        commit(table, list(changes))  # type: ignore[arg-type]
    return refused.value.message


class TestTheTableItself:
    def test_a_commit_that_changes_nothing_gives_the_base_itself(self) -> None:
        table = a_table(snapshots=1, color="red")

        for nothing in (
            [],
            [update("set-properties", updates={"color": "red"})],
            [update("set-properties", updates={})],
            [update("remove-properties", removals=["absent"])],
            [update("set-location", location="s3://bucket/table/")],
            [update("upgrade-format-version", format_version=2)],
            [update("assign-uuid", uuid=UUID)],
            [update("add-schema", schema=a_schema(schema_id=9)), update("set-current-schema", schema_id=0)],
            [update("add-spec", spec=a_spec()), update("add-sort-order", sort_order=an_order())],
            [update("remove-snapshots", snapshot_ids=[77])],
            [update("remove-snapshot-ref", ref_name="absent"), set_ref(1)],
            [update("remove-statistics", snapshot_id=1), update("remove-partition-statistics", snapshot_id=1)],
            [update("remove-schemas", schema_ids=[5]), update("remove-partition-specs", spec_ids=[5])],
            [update("remove-encryption-key", key_id="absent")],
            [update("set-properties", updates={"a": "1"}), update("remove-properties", removals=["a"])],
        ):
            assert commit(table, nothing) is table

    def test_properties_are_merged_and_removed(self) -> None:
        """000-61, 000-62, 000-65."""
        table = a_table(color="red", old="x")

        changed = commit(
            table, [update("set-properties", updates={"color": "blue"}), update("remove-properties", removals=["old"])]
        )

        assert changed.properties == {"write.parquet.compression-codec": "zstd", "color": "blue"}
        assert table.properties["color"] == "red"

    def test_the_names_old_clients_use_for_properties_are_understood(self) -> None:
        table = commit(a_table(a="1"), [update("set-properties", updated={"b": "2"})])
        table = commit(table, [update("remove-properties", removed=["a"])])

        assert "a" not in table.properties
        assert table.properties["b"] == "2"

    def test_reserved_properties_are_not_stored(self) -> None:
        table = commit(a_table(), [update("set-properties", updates={"format-version": "3", "uuid": "x", "a": "1"})])

        assert table.format_version == 2
        assert table.properties == {"write.parquet.compression-codec": "zstd", "a": "1"}

    def test_a_format_version_is_upgraded_and_never_downgraded(self) -> None:
        """000-49."""
        upgraded = commit(a_table(1), [update("upgrade-format-version", format_version=3)])

        assert (upgraded.format_version, upgraded.next_row_id, upgraded.last_sequence_number) == (3, 0, 0)
        assert (
            refusal(upgraded, update("upgrade-format-version", format_version=2)) == "Cannot downgrade v3 table to v2"
        )
        assert refusal(upgraded, update("upgrade-format-version", format_version=4)) == (
            "Cannot upgrade table to unsupported format version: v4 (supported: v3)"
        )

    def test_a_table_keeps_its_uuid(self) -> None:
        other = "00000000-0000-0000-0000-000000000000"

        assert refusal(a_table(), update("assign-uuid", uuid=other)) == (
            f"Cannot reassign table UUID: {UUID} to {other}"
        )
        assert refusal(a_table(), update("assign-uuid", uuid="x")) == "Invalid UUID string: x"

    def test_a_location_loses_its_trailing_slashes(self) -> None:
        """000-60."""
        assert commit(a_table(), [update("set-location", location="s3://other/place//")]).location == "s3://other/place"
        assert commit(a_table(), [update("set-location", location="s3://")]).location == "s3://"
        assert refusal(a_table(), update("set-location", location="")) == "path must not be null or empty"

    def test_a_view_update_cannot_be_applied_to_a_table(self) -> None:
        assert refusal(a_table(), update("add-view-version", view_version={})) == (
            "Cannot apply update AddViewVersion to a table"
        )
        assert refusal(a_table(), update("set-current-view-version", view_version_id=1)) == (
            "Cannot apply update SetCurrentViewVersion to a table"
        )

    def test_encryption_keys_are_added_once_and_removed(self) -> None:
        key = {"key-id": "k1", "encrypted-key-metadata": "c2VjcmV0", "encrypted-by-id": "master"}
        table = commit(a_table(3), [update("add-encryption-key", encryption_key=key)])

        assert table.encryption_keys == (key,)
        nothing = key | {"key-id": "k2", "encrypted-by-id": None, "properties": None}
        added = commit(table, [update("add-encryption-key", encryption_key=nothing)]).encryption_keys[1]
        assert added == {"key-id": "k2", "encrypted-key-metadata": "c2VjcmV0"}
        assert commit(table, [update("add-encryption-key", encryption_key=key | {"encrypted-by-id": "x"})]) is table
        assert commit(table, [update("remove-encryption-key", key_id="k1")]).encryption_keys == ()
        for written in ("%", "a2V5=", "a2V5===="):  # Java wants no padding where none is missing
            assert refusal(
                table, update("add-encryption-key", encryption_key=key | {"encrypted-key-metadata": written})
            ) == ("Cannot parse encryption key: encrypted-key-metadata is not base64")
        unpadded = key | {"key-id": "k3", "encrypted-key-metadata": "YQ"}
        assert commit(table, [update("add-encryption-key", encryption_key=unpadded)]).encryption_keys == (key, unpadded)

    def test_the_last_update_never_lies_before_the_one_before(self) -> None:
        table = a_table()

        late = commit(table, [update("set-properties", updates={"a": "1"})], now_ms=NOW_MS + 50)
        early = commit(late, [update("set-properties", updates={"a": "2"})], now_ms=NOW_MS - 90_000)

        assert late.last_updated_ms == NOW_MS + 50
        assert early.last_updated_ms == NOW_MS + 51


class TestTheMetadataLog:
    def test_every_commit_remembers_the_file_it_replaces(self) -> None:
        table = a_table()

        changed = commit(table, append(table, 1), location="s3://bucket/table/metadata/0.metadata.json")

        assert changed.metadata_log == (
            {"timestamp-ms": NOW_MS, "metadata-file": "s3://bucket/table/metadata/0.metadata.json"},
        )

    def test_the_log_is_trimmed_by_the_new_properties(self) -> None:
        table = a_table()
        for number in range(4):
            table = commit(table, [update("set-properties", updates={"n": str(number)})], location=str(number))
        limit = update("set-properties", updates={"write.metadata.previous-versions-max": "2"})

        trimmed = commit(table, [limit], location="4")

        assert [entry["metadata-file"] for entry in trimmed.metadata_log] == ["3", "4"]

    def test_at_least_one_file_and_by_default_a_hundred_are_remembered(self) -> None:
        limit = update("set-properties", updates={"write.metadata.previous-versions-max": "0"})
        table = commit(a_table(), [limit])
        for number in range(3):
            table = commit(table, [update("set-properties", updates={"n": str(number)})], location=str(number))
        assert [entry["metadata-file"] for entry in table.metadata_log] == ["2"]

        table = a_table()
        for number in range(103):
            table = commit(table, [update("set-properties", updates={"n": str(number)})], location=str(number))
        assert [entry["metadata-file"] for entry in table.metadata_log] == [str(number) for number in range(3, 103)]

    def test_a_limit_that_is_no_number_is_refused(self) -> None:
        limit = update("set-properties", updates={"write.metadata.previous-versions-max": "many"})

        assert refusal(a_table(), limit) == (
            'Table property write.metadata.previous-versions-max must have integer value: "many"'
        )


class TestSchemas:
    def test_a_new_schema_gets_the_next_id_whatever_the_client_sent(self) -> None:
        """000-50, 000-51, 000-63."""
        table = commit(a_table(), [update("add-schema", schema=WIDER), update("set-current-schema", schema_id=-1)])

        assert [schema["schema-id"] for schema in table.schemas] == [0, 1]
        assert (table.current_schema_id, table.last_column_id) == (1, 4)

    def test_a_schema_the_table_has_had_before_is_found_again(self) -> None:
        table = commit(a_table(), [update("add-schema", schema=WIDER), update("set-current-schema", schema_id=1)])

        reverted = commit(
            table, [update("add-schema", schema=a_schema(schema_id=9)), update("set-current-schema", schema_id=0)]
        )

        assert len(reverted.schemas) == 2
        assert (reverted.current_schema_id, reverted.last_column_id) == (0, 4)

    def test_the_last_column_id_comes_from_nested_fields_too_and_never_falls(self) -> None:
        nested = a_field(9, "s", {"type": "struct", "fields": [a_field(40, "deep")]})
        table = commit(a_table(), [update("add-schema", schema=a_schema(nested), last_column_id=2)])
        assert table.last_column_id == 40

        narrower = commit(table, [update("add-schema", schema=a_schema(a_field(1, "id")))])
        assert narrower.last_column_id == 40

    def test_the_last_added_schema_must_have_been_added_in_the_same_commit(self) -> None:
        message = "Cannot set last added schema: no schema has been added"

        assert refusal(a_table(), update("set-current-schema", schema_id=-1)) == message
        assert (
            refusal(a_table(), update("add-schema", schema=a_schema()), update("set-current-schema", schema_id=-1))
            == message
        )
        assert refusal(a_table(), update("set-current-schema", schema_id=5)) == (
            "Cannot set current schema to unknown schema: 5"
        )

    def test_a_schema_must_fit_the_format_version_it_is_added_to(self) -> None:
        variant = update("add-schema", schema=a_schema(a_field(5, "data", "variant")))

        assert refusal(a_table(), variant) == (
            "Invalid schema for v2:\n- Invalid type for data: variant is not supported until v3"
        )
        assert len(commit(a_table(), [update("upgrade-format-version", format_version=3), variant]).schemas) == 2

    @pytest.mark.parametrize("version", [1, 2, 3])
    @pytest.mark.parametrize("transform", ["identity", "bucket[4]", "void"])
    def test_a_column_does_not_take_the_name_of_a_partition(self, transform: str, version: int) -> None:
        """Whoever added the one need not know of the other; Iceberg's own readers could not read the table."""
        table = a_table(version, spec=a_spec(("part", transform, 2)))
        named_so = [*a_schema()["fields"], a_field(4, "part", "int")]
        change = [update("add-schema", schema=a_schema(*named_so)), update("set-current-schema", schema_id=-1)]
        no_longer = [update("add-spec", spec=a_spec()), update("set-default-spec", spec_id=-1)]
        gone = update("remove-partition-specs", spec_ids=[0])
        refused = "Cannot create identity partition sourced from different field in schema: part"

        assert refusal(table, *change) == refused
        assert refusal(table, *no_longer, *change) == refused
        assert refusal(commit(table, change[:1]), update("set-current-schema", schema_id=1)) == refused
        assert commit(table, [*no_longer, gone, *change]).current_schema_id == 1

    def test_a_column_takes_the_name_of_its_own_partition_or_of_one_whose_column_is_gone(self) -> None:
        def schema_of(*fields: Json) -> list[Json]:
            return [update("add-schema", schema=a_schema(*fields)), update("set-current-schema", schema_id=-1)]

        first, _, last = a_schema()["fields"]
        table = a_table(spec=a_spec(("part", "bucket[4]", 2)))

        assert commit(table, schema_of(first, a_field(2, "part", "string"), last)).current_schema_id == 1
        table = commit(table, [update("add-spec", spec=a_spec()), update("set-default-spec", spec_id=-1)])
        table = commit(table, schema_of(first, last))
        assert commit(table, schema_of(first, last, a_field(4, "part", "int"))).current_schema_id == 2

    @pytest.mark.parametrize(
        ("transform", "type_", "refused"),
        [
            ("bucket[4]", "double", "Cannot bucket by type: double"),
            ("truncate[2]", "date", "Cannot truncate type: date"),
        ],
    )
    def test_a_column_keeps_a_type_that_old_specs_can_be_read_with(
        self, transform: str, type_: str, refused: str
    ) -> None:
        """As for a table that is replaced by another: columns keep their ids by name, whatever their types."""
        first, _, last = a_schema()["fields"]
        other = [update("add-schema", schema=a_schema(first, a_field(2, "data", type_), last))]
        other.append(update("set-current-schema", schema_id=-1))
        split = a_table(spec=a_spec(("part", transform, 2)))
        split = commit(split, [update("add-spec", spec=a_spec()), update("set-default-spec", spec_id=-1)])

        assert refusal(split, *other) == refused
        assert commit(a_table(spec=a_spec(("part", "identity", 2))), other).current_schema_id == 1

    def test_unused_schemas_are_removed_and_the_current_one_is_not(self) -> None:
        table = commit(a_table(), [update("add-schema", schema=WIDER), update("set-current-schema", schema_id=-1)])

        assert refusal(table, update("remove-schemas", schema_ids=[0, 1])) == "Cannot remove the current schema"
        assert [each["schema-id"] for each in commit(table, [update("remove-schemas", schema_ids=[0, 8])]).schemas] == [
            1
        ]

    def test_a_partition_column_cannot_be_dropped_while_it_is_used(self) -> None:
        table = a_table(spec=a_spec(("id", "identity", 1)), order=an_order(("identity", 2)))
        without = update("set-current-schema", schema_id=-1)

        assert refusal(table, update("add-schema", schema=a_schema(a_field(2, "data", "string"))), without) == (
            "Cannot find source column for partition field: 1000: id: identity(1)"
        )
        assert refusal(table, update("add-schema", schema=a_schema(a_field(1, "id"))), without) == (
            "Cannot find source column for sort field: identity(2) ASC NULLS FIRST"
        )


class TestPartitionSpecs:
    def test_a_new_spec_gets_the_next_id_and_a_known_one_is_found_again(self) -> None:
        """000-52, 000-53."""
        by_id = a_spec(("id", "identity", 1), spec_id=9)
        table = commit(a_table(), [update("add-spec", spec=by_id), update("set-default-spec", spec_id=-1)])
        assert (table.default_spec_id, table.last_partition_id) == (1, 1000)

        reverted = commit(table, [update("add-spec", spec=a_spec()), update("set-default-spec", spec_id=0)])
        assert (reverted.default_spec_id, len(reverted.partition_specs)) == (0, 2)
        assert reverted.last_partition_id == 1000

        other_ids = a_spec(("id", "identity", 1), first_field_id=1005)
        assert commit(table, [update("add-spec", spec=other_ids)]) is table

    def test_fields_without_ids_get_ones_that_never_meant_something_else(self) -> None:
        table = a_table(spec=a_spec(("id", "identity", 1)))
        spec = a_spec(("day", "day", 3), ("id", "identity", 1), first_field_id=None)

        changed = commit(table, [update("add-spec", spec=spec)])

        assert [field["field-id"] for field in changed.partition_specs[1]["fields"]] == [1001, 1000]
        assert changed.last_partition_id == 1001

    def test_a_v1_spec_counts_from_a_thousand(self) -> None:
        table = a_table(1)

        assert (
            commit(table, [update("add-spec", spec=a_spec(("d", "day", 3), first_field_id=None))]).last_partition_id
            == 1000
        )
        assert refusal(table, update("add-spec", spec=a_spec(("d", "day", 3), first_field_id=1001))) == (
            "Spec does not use sequential IDs that are required in v1: [\n  1001: d: day(3)\n]"
        )

    def test_the_last_added_spec_must_have_been_added_in_the_same_commit(self) -> None:
        message = "Cannot set last added spec: no spec has been added"

        assert refusal(a_table(), update("set-default-spec", spec_id=-1)) == message
        assert refusal(a_table(), update("add-spec", spec=a_spec()), update("set-default-spec", spec_id=-1)) == message
        assert refusal(a_table(), update("set-default-spec", spec_id=5)) == (
            "Cannot set default partition spec to unknown spec: 5"
        )

    def test_unused_specs_are_removed_and_the_default_is_not(self) -> None:
        by_id = a_spec(("id", "identity", 1))
        table = commit(a_table(), [update("add-spec", spec=by_id), update("set-default-spec", spec_id=-1)])

        assert (
            refusal(table, update("remove-partition-specs", spec_ids=[1])) == "Cannot remove the default partition spec"
        )
        assert [
            each["spec-id"] for each in commit(table, [update("remove-partition-specs", spec_ids=[0])]).partition_specs
        ] == [1]

    def test_a_void_partition_may_outlive_its_column(self) -> None:
        table = a_table(1, spec=a_spec(("id", "identity", 1)))
        void = [update("add-spec", spec=a_spec(("id", "void", 1))), update("set-default-spec", spec_id=-1)]
        dropped = [
            update("add-schema", schema=a_schema(a_field(2, "data", "string"))),
            update("set-current-schema", schema_id=-1),
        ]

        assert commit(commit(table, void), dropped).default_spec["fields"][0]["transform"] == "void"


class TestTheLargestNumbers:
    """A number that does not fit its type could be written, but the table could never be read again."""

    def test_a_partition_field_id_after_the_largest_is_refused(self) -> None:
        largest = a_spec(("id", "identity", 1), first_field_id=2**31 - 1)
        table = commit(a_table(), [update("add-spec", spec=largest)])

        assert refusal(table, update("add-spec", spec=a_spec(("d", "day", 3), first_field_id=None))) == (
            "Cannot assign a partition field id after 2147483647"
        )

    def test_a_sequence_number_after_the_largest_is_refused(self) -> None:
        table = commit(a_table(), [add_snapshot(1, sequence_number=2**63 - 1)])

        assert refusal(table, add_snapshot(2, 1)) == "Cannot assign a sequence number after 9223372036854775807"

    def test_ids_and_times_after_the_largest_are_refused(self) -> None:
        table = replace(a_table(), schemas=(a_schema(schema_id=2**31 - 1),), current_schema_id=2**31 - 1)
        assert refusal(table, update("add-schema", schema=WIDER)) == "Cannot assign a schema id after 2147483647"

        table = replace(a_table(), last_updated_ms=2**63 - 1)
        assert refusal(table, update("set-properties", updates={"a": "b"})) == (
            "Cannot assign a timestamp after 9223372036854775807"
        )


class TestSortOrders:
    def test_an_order_with_a_taken_id_is_renumbered_and_a_known_one_is_found_again(self) -> None:
        """000-54, 000-55."""
        table = a_table(order=an_order(("identity", 1)))

        by_data = an_order(("identity", 2), order_id=1)
        changed = commit(
            table, [update("add-sort-order", sort_order=by_data), update("set-default-sort-order", sort_order_id=-1)]
        )
        assert (changed.default_sort_order_id, default_order(changed)["fields"]) == (2, by_data["fields"])

        by_id = an_order(("identity", 1), order_id=7)
        reverted = commit(
            changed, [update("add-sort-order", sort_order=by_id), update("set-default-sort-order", sort_order_id=1)]
        )
        assert (reverted.default_sort_order_id, len(reverted.sort_orders)) == (1, 2)

    def test_unsorted_is_always_order_zero(self) -> None:
        table = a_table(order=an_order(("identity", 1)))

        unsorted = commit(
            table, [update("add-sort-order", sort_order=an_order()), update("set-default-sort-order", sort_order_id=-1)]
        )

        assert default_order(unsorted) == an_order()
        assert [order["order-id"] for order in unsorted.sort_orders] == [1, 0]

    def test_the_last_added_order_must_have_been_added_in_the_same_commit(self) -> None:
        assert refusal(a_table(), update("set-default-sort-order", sort_order_id=-1)) == (
            "Cannot set last added sort order: no sort order has been added"
        )
        assert refusal(a_table(), update("set-default-sort-order", sort_order_id=5)) == (
            "Cannot set default sort order to unknown sort order: 5"
        )


class TestStatistics:
    @staticmethod
    def statistics(snapshot_id: int, path: str) -> Json:
        return {
            "snapshot-id": snapshot_id,
            "statistics-path": path,
            "file-size-in-bytes": 10,
            "file-footer-size-in-bytes": 2,
            "blob-metadata": [{"type": "theta", "snapshot-id": snapshot_id, "sequence-number": 1, "fields": [1]}],
        }

    def test_a_snapshot_has_one_statistics_file(self) -> None:
        first, second, newer = self.statistics(1, "a"), self.statistics(2, "b"), self.statistics(1, "c")
        table = a_table(snapshots=2)
        for each in (first, second, newer):
            table = commit(table, [update("set-statistics", snapshot_id=0, statistics=each)])

        assert table.statistics == (newer, second)
        assert commit(table, [update("remove-statistics", snapshot_id=1)]).statistics == (second,)

    def test_what_is_null_is_not_stored(self) -> None:
        """Iceberg's own readers take null for a wrong value where they would take nothing for none."""
        wanted, partitions = (
            self.statistics(1, "a"),
            {"snapshot-id": 1, "statistics-path": "p", "file-size-in-bytes": 1},
        )
        sent = wanted | {"key-metadata": None, "blob-metadata": [wanted["blob-metadata"][0] | {"properties": None}]}
        changes = [
            update("set-statistics", snapshot_id=1, statistics=sent),
            update("set-partition-statistics", partition_statistics=partitions | {"unknown": None}),
        ]

        table = commit(a_table(snapshots=1), changes)

        assert (table.statistics, table.partition_statistics) == ((wanted,), (partitions,))

    def test_a_snapshot_has_one_partition_statistics_file(self) -> None:
        first = {"snapshot-id": 1, "statistics-path": "a", "file-size-in-bytes": 1}
        newer = first | {"statistics-path": "b"}
        table = commit(a_table(snapshots=1), [update("set-partition-statistics", partition_statistics=first)])
        table = commit(table, [update("set-partition-statistics", partition_statistics=newer)])

        assert table.partition_statistics == (newer,)
        assert commit(table, [update("remove-partition-statistics", snapshot_id=1)]).partition_statistics == ()

    def test_statistics_go_with_their_snapshot(self) -> None:
        partition = {"snapshot-id": 1, "statistics-path": "a", "file-size-in-bytes": 1}
        table = commit(
            a_table(snapshots=2),
            [
                update("set-statistics", statistics=self.statistics(1, "a")),
                update("set-partition-statistics", partition_statistics=partition),
            ],
        )

        table = commit(table, [update("remove-snapshots", snapshot_ids=[1])])

        assert (table.statistics, table.partition_statistics) == ((), ())

    def test_statistics_without_their_fields_are_refused(self) -> None:
        assert refusal(a_table(), update("set-statistics", statistics={"snapshot-id": 1})) == (
            "Cannot parse statistics: Object missing required field `statistics-path`"
        )


class TestCreationByCommit:
    @pytest.mark.parametrize("version", [1, 2, 3])
    def test_a_table_is_built_from_nothing_but_the_updates(self, version: int) -> None:
        table = commit(None, a_creation(version), requirement("assert-create"), location=None)

        assert (table.format_version, table.table_uuid, table.location) == (version, UUID, "s3://bucket/table")
        assert table.properties == {"created-by": "a client"}
        assert table.metadata_log == ()
        assert (table.last_updated_ms, table.current_snapshot_id) == (NOW_MS, None)
        assert table.last_column_id == 3

    def test_ids_the_client_staged_are_kept(self) -> None:
        schema = a_schema(a_field(5, "id"), a_field(9, "data", "string"))

        table = commit(None, a_creation(schema=schema), location=None)

        assert [field["id"] for field in table.current_schema["fields"]] == [5, 9]

    def test_several_schemas_specs_and_orders_in_one_creation(self) -> None:
        table = commit(
            None,
            [
                *a_creation(),
                update("add-schema", schema=WIDER),
                update("set-current-schema", schema_id=-1),
                update("add-spec", spec=a_spec(("n", "identity", 4))),
                update("set-default-spec", spec_id=-1),
                update("add-sort-order", sort_order=an_order(("identity", 1))),
                update("add-sort-order", sort_order=an_order(("identity", 2))),
                update("set-default-sort-order", sort_order_id=-1),
                add_snapshot(1, sequence_number=1),
                set_ref(1),
                add_snapshot(2, 1, sequence_number=2),
                set_ref(2),
            ],
            location=None,
        )

        assert (table.current_schema_id, table.default_spec_id, table.default_sort_order_id) == (1, 1, 2)
        assert [entry["snapshot-id"] for entry in table.snapshot_log] == [2]
        assert (len(table.snapshots), table.last_sequence_number) == (2, 2)

    @pytest.mark.parametrize(
        ("missing", "message"),
        [
            ("assign-uuid", "Cannot create table: no UUID has been assigned"),
            ("set-location", "Cannot create table: no location has been set"),
            ("add-schema", "Cannot set last added schema: no schema has been added"),
            ("add-spec", "Cannot set last added spec: no spec has been added"),
        ],
    )
    def test_a_creation_must_be_complete(self, missing: str, message: str) -> None:
        assert refusal(None, *[each for each in a_creation() if each["action"] != missing]) == message

    def test_an_empty_creation_is_refused(self) -> None:
        assert refusal(None) == "Cannot create table: no schema has been added"
        assert refusal(None, update("upgrade-format-version", format_version=4)) == (
            "Cannot upgrade table to unsupported format version: v4 (supported: v3)"
        )
        assert refusal(None, update("upgrade-format-version", format_version=0)) == (
            "Unsupported format version: v0 (supported: v3)"
        )
        assert refusal(None, update("add-spec", spec=a_spec())) == (
            "Cannot bind to the current schema: no schema has been added"
        )


def test_a_failing_update_leaves_nothing_of_the_ones_before_it() -> None:
    """000-34: one commit, one new version, or none."""
    table = a_table(snapshots=1)

    with pytest.raises((IllegalArgument, InvalidMetadata)):
        commit(table, [update("set-properties", updates={"a": "1"}), *append(table, 2), set_ref(99, "broken")])

    assert table == a_table(snapshots=1)
    assert table.find_snapshot(2) is None


def test_a_snapshot_made_for_v1_is_not_numbered_when_its_commit_upgrades_the_table() -> None:
    """As in the reference: 0 is not after the table's last number; only a snapshot without a parent may have it."""
    table = a_table(1, snapshots=1)
    upgrade = update("upgrade-format-version", format_version=2)

    with pytest.raises(CommitFailed, match="sequence number 0 older than last sequence number 0"):
        commit(table, [upgrade, add_snapshot(2, parent=1)])

    first = commit(a_table(1), [upgrade, add_snapshot(1)])
    assert first.snapshots[0]["sequence-number"] == 0
    numbered = commit(table, [upgrade, add_snapshot(2, parent=1, sequence_number=1)])
    assert numbered.last_sequence_number == 1

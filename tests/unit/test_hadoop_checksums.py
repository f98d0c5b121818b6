"""What Hadoop's local file system leaves beside the files that it writes, and what becomes of it."""

from pathlib import Path

from nunatak.objectstore.local import LocalFiles
from nunatak.objectstore.location import parse_location


def test_the_checksum_of_a_deleted_file_goes_along_and_no_other(tmp_path: Path) -> None:
    names = ("a.parquet", ".a.parquet.crc", "b.parquet", ".b.parquet.crc", "c.parquet")
    for name in names:
        (tmp_path / name).touch()
    files = LocalFiles((parse_location(f"file://{tmp_path}"),))

    for name in ("a.parquet", "c.parquet", "nothing.parquet"):
        files.delete(parse_location(f"file://{tmp_path}/{name}"))

    assert {file.name for file in tmp_path.iterdir()} == {"b.parquet", ".b.parquet.crc"}

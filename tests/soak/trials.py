"""The fault tests at full size, in one table: the promise, the file, its sizes and the goals its figures must reach."""

from collections.abc import Mapping
from dataclasses import dataclass, field

VARIABLE = "NUNATAK_TEST_"


@dataclass(frozen=True)
class Trial:
    """One pytest call of a soak; `sizes` shrink with the scale of a trial run, `fixed` never do."""

    fault: str
    title: str
    promise: str
    test: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    fixed: Mapping[str, int] = field(default_factory=dict)
    goals: Mapping[str, int] = field(default_factory=dict)  # by figure: what its lines must reach together

    def environment(self, scale: float) -> dict[str, str]:
        scaled = {name: max(1, round(size * scale)) for name, size in self.sizes.items()}
        return {f"{VARIABLE}{name}": str(value) for name, value in {**scaled, **self.fixed}.items()}


TRIALS = (
    Trial(
        "F1",
        "kill -9",
        "A server on SQLite that is killed at any moment loses no commit it acknowledged, applies none twice, points "
        "at no file that is not there, and leaves no gap. The metadata files of commits that were cut off are swept.",
        "faults/test_kill.py",
        {"COMMITS": 100_000, "KILLS": 200},
        {"WRITERS": 32},
        {"commits": 100_000, "kills": 200},
    ),
    Trial(
        "F1",
        "kill -9 with tables on S3",
        "The same with a warehouse on S3: every pointer leads to an object that is there.",
        "faults/test_kill_on_s3.py",
        {"S3_COMMITS": 20_000, "S3_KILLS": 50},
        {"WRITERS": 32},
        {"commits": 20_000, "kills": 50},
    ),
    Trial(
        "F1",
        "The sweep",
        "A running server deletes what killed commits left, and nothing else.",
        "faults/test_sweep.py",
    ),
    Trial(
        "F2",
        "Two servers on PostgreSQL",
        "Of two servers on one database either may be killed: what one acknowledged stands at both, and once.",
        "faults/test_postgres_two_servers.py",
        {"COMMITS": 20_000, "KILLS": 50},
        {},
        {"commits": 20_000, "kills": 50},
    ),
    Trial(
        "F2",
        "Several processes of one server",
        "The processes of `--workers` die and come back one by one without a commit lost or doubled.",
        "faults/test_workers.py",
        {"COMMITS": 5_000, "KILLS": 20},
        {},
        {"commits": 5_000, "kills": 20},
    ),
    Trial(
        "F3",
        "PostgreSQL crashes",
        "PostgreSQL may stop at once or be killed under load: nothing acknowledged is lost, and every answer was true.",
        "faults/test_postgres_crash.py",
        {"COMMITS": 5_000, "CRASHES": 20},
        {},
        {"commits": 5_000, "crashes": 20},
    ),
    Trial(
        "F3",
        "MariaDB crashes",
        "The same holds for MariaDB, killed and restarted under two servers.",
        "faults/test_mariadb_crash.py",
        {"COMMITS": 2_000, "CRASHES": 10},
        {},
        {"commits": 2_000, "crashes": 10},
    ),
    Trial(
        "F4",
        "Failover",
        "When the primary dies and its synchronous standby takes over, nothing acknowledged is lost.",
        "faults/test_postgres_failover.py",
        {"COMMITS": 1_000, "FAILOVERS": 5},
        {},
        {"commits": 1_000, "failovers": 5},
    ),
    Trial(
        "F5",
        "Lost, repeated and late messages",
        "Whatever happens between client and server, a commit is applied at most once and never refused if it was "
        "applied, with an idempotency key and without. Answers that nobody heard are judged too.",
        "faults/test_lost_replies.py",
        {"COMMITS": 10_000},
        {"WRITERS": 24},
        {"faulted commits": 20_000},
    ),
    Trial(
        "F5",
        "One key at two servers",
        "A client that lost patience with one server asks the other: it is done once.",
        "faults/test_many_servers.py",
        {"PAIRS": 1_000},
    ),
    Trial(
        "F6",
        "Cuts between server and PostgreSQL",
        "The connection may end at any message of the protocol, also between COMMIT and its reply: the answer is true.",
        "faults/test_postgres_cuts.py",
        {"COMMITS": 2_000},
        {"CUTS": 3},  # of each message at each moment
        {"commits": 1_900},  # a few of those asked for end refused, for certain
    ),
    Trial(
        "F7",
        "Files that fail",
        "Files that cannot be written, are cut short or take long make no answer wrong and leave nothing behind.",
        "faults/test_object_store.py",
        {"DISK_COMMITS": 5_000},
        {},
        {"commits": 5_000},
    ),
    Trial(
        "F8",
        "A full disk",
        "Changes are refused for certain, reads go on, and so does all else once there is room again.",
        "faults/test_disk_full.py",
        {"FILLS": 10},
    ),
    Trial(
        "F9",
        "Power cuts",
        "What was answered is on the disk: a cut at any write or sync of the database and the files takes none of it.",
        "faults/test_power_cut.py",
        {"CUTS": 2_000},
        {},
        {"cuts": 2_000},
    ),
    Trial(
        "F10",
        "Processes that stand still",
        "A server that is stopped for a while and goes on with what it knew commits over nothing, and a second one "
        "refuses to start beside it on the same data folder.",
        "faults/test_stopped_process.py",
        {"STOPS": 50},
        {},
        {"stops": 100},
    ),
    Trial(
        "F10",
        "Processes that come and go",
        "A server told to stop answers what it has begun; one data folder has one server.",
        "faults/test_second_process.py",
    ),
    Trial(
        "F11",
        "Clocks that jump",
        "Clocks may jump by ten minutes, each server's on its own: what is told in times stays in order.",
        "faults/test_clock.py",
        {"CLOCK_COMMITS": 2_000},
    ),
    Trial(
        "F12",
        "A model of the catalog",
        "Whatever is asked in whatever order, the server answers and holds what a pure model of it says.",
        "faults/test_model.py",
        {"STEPS": 85_000},  # on SQLite; a tenth on each of the others
        {},
        {"steps": 100_000},
    ),
    Trial(
        "F16",
        "Transactions",
        "A commit to several tables is in all of them or in none, although the server is killed.",
        "faults/test_transactions.py",
        {"COMMITS": 5_000, "KILLS": 50},
        {},
        {"transactions": 5_000, "kills": 50},
    ),
    Trial(
        "F16",
        "Transactions on PostgreSQL",
        "The same through two servers, while either of them is killed and the database crashes.",
        "faults/test_postgres_transactions.py",
        {"TRANSACTIONS": 1_000, "KILLS": 20},
        {},
        {"transactions": 1_000},
    ),
    Trial(
        "F17",
        "Lifecycles",
        "Creates, drops, renames and registers all at once leave one table for each name; who pages through them sees "
        "no name twice, and skips none that was there throughout.",
        "faults/test_lifecycle_storm.py",
        {"STEPS": 1_500},
        {},
        {"requests": 30_000},
    ),
    Trial(
        "F18",
        "Purges",
        "A purge takes exactly the files of its table, whatever its neighbours are called, and survives a crash.",
        "faults/test_purge.py",
        {"PURGES": 500},
        {},
        {"purges": 500},
    ),
    Trial(
        "F1",
        "Events",
        "A server that is killed between a change and the telemetry spool loses no event.",
        "faults/test_outbox.py",
    ),
    Trial(
        "F21",
        "Upgrades",
        "The database moves forward from every released schema, under load and through failures.",
        "faults/test_upgrade.py",
    ),
    Trial(
        "F22",
        "Backups",
        "A backup taken under load and restored elsewhere holds every commit that was acknowledged before it began.",
        "faults/test_backup.py",
    ),
    Trial(
        "F23",
        "fsck",
        "`nunatak fsck` finds the damage of a disaster and mends what can be. It also runs after every test above.",
        "faults/test_fsck.py",
        {"FSCK_TABLES": 10_000},
        {},
        {"tables": 10_000},
    ),
    Trial(
        "S1",
        "Scopes of credentials",
        "A vended credential opens its table and nothing else, whatever the table's location is called: on S3, on "
        "stores that speak its protocol, on ADLS and on GCS. An evaluator of policies that shares no code with "
        "them decides.",
        "unit/test_vended_scope.py",
        {"TABLES": 100_000},
        {},
        {"tables": 500_000},
    ),
    Trial(
        "S1",
        "Scopes of signed requests",
        "The server signs no request that touches anything but the caller's table, however the request is written: "
        "other spellings of a path, queries, headers, hosts, batches of deletes.",
        "unit/test_signed_scope.py",
        {"TABLES": 100_000},
        {},
        {"tables": 100_000},
    ),
)


def chosen(names: tuple[str, ...]) -> tuple[Trial, ...]:
    """The trials of these faults, or all; an unknown name is refused."""
    known = {trial.fault for trial in TRIALS}
    wanted = {name.upper() for name in names}
    if not wanted <= known:
        raise ValueError(f"no such fault: {', '.join(sorted(wanted - known))}; known are {', '.join(sorted(known))}")
    return tuple(trial for trial in TRIALS if not wanted or trial.fault in wanted)

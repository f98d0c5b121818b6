"""The shop's events as SQL over `range` and xxhash64: the same rows on every machine. Runs nothing.

Integer arithmetic only: floating point results differ between machines.
"""

from dataclasses import dataclass

FIRST_DAY = "2026-01-05"  # a Monday
DAYS = 56
CUSTOMERS = 5_000
COUNTRIES = ("DK", "FI", "FO", "IS", "NO", "SE")
# Sixteen entries: some countries buy more than others.
DRAWN = ("NO",) * 5 + ("SE",) * 4 + ("DK",) * 3 + ("FI",) * 2 + ("IS", "FO")
PAGES = ("home", "search", "product", "basket", "checkout")
NEXT_MORNING = 10**8  # first id of the orders that arrive last
CLICKS_PER_FILE = 100
FILES_OF_A_DAY = 10  # minimum per partition, so that compaction has work
FORGOTTEN = 20  # one customer in so many is deleted


@dataclass(frozen=True)
class DemoSize:
    """The amounts of data."""

    orders: int
    files: int = 2_000
    commits: int = 20

    @property
    def resent(self) -> int:
        return self.orders // 25

    @property
    def corrections(self) -> int:
        return self.orders // 50

    @property
    def batch(self) -> int:
        return max(self.orders // 45, 400)  # about what a late Monday sells

    @property
    def click_days(self) -> int:
        return max(1, min(10, self.commits, self.files // FILES_OF_A_DAY))


def demo_size(scale: float, files: int = 2_000) -> DemoSize:
    """Returns the size; scale 1 is 200,000 orders. The number of small files does not depend on the scale."""
    return DemoSize(max(1_000, round(200_000 * scale)), files, min(20, max(1, files // FILES_OF_A_DAY)))


# Raw events: everything is text, and some of it is wrong


def raw_orders(size: DemoSize, partitions: int | None = None) -> str:
    """Returns every order once, and one in 25 a second time, an hour later."""
    return f"""
        SELECT {_raw("'order'", "amount", f"if(n < {size.orders}, 0, 3600)")}
        FROM (SELECT *, {_order("amount")} FROM (
            SELECT n, if(n < {size.orders}, n, pmod(xxhash64(n, 'again'), {size.orders})) AS id
            FROM {_range("n", 0, size.orders + size.resent, partitions)}))"""


def raw_corrections(size: DemoSize, partitions: int | None = None) -> str:
    """Returns corrected orders, some more than once; the last correction counts."""
    return f"""
        SELECT {_raw("'correction'", "amount", f"86400 * {DAYS + 1} + n")}
        FROM (SELECT *, {_order("corrected")} FROM (
            SELECT n, pmod(xxhash64(n, 'wrong'), {size.orders}) AS id
            FROM {_range("n", 0, size.corrections, partitions)}))"""


def _raw(kind: str, amount: str, later_seconds: str) -> str:
    text = f"concat({amount} div 100, '.', lpad({amount} % 100, 2, '0'))"
    return f"""
        {kind} AS kind,
        {ORDER_ID} AS order_id,
        cast({_moment()} AS string) AS sent_at,
        concat('c-', customer) AS customer,
        CASE pmod(xxhash64(id, 'typed'), 50) WHEN 0 THEN lower(country) WHEN 1 THEN concat(country, ' ')
            ELSE country END AS country,
        CASE pmod(xxhash64(id, 'noise'), 200) WHEN 0 THEN 'n/a' WHEN 1 THEN concat(' ', {text})
            WHEN 2 THEN replace({text}, '.', ',') ELSE {text} END AS amount,
        timestampadd(SECOND, {later_seconds} + pmod(xxhash64(n, 'lag'), 60), {_moment()}) AS received_at"""


# Cleaned, for the silver layer


def clean_orders(raw: str) -> str:
    """Returns the newest version of each order; unreadable amounts are left out."""
    return f"""
        SELECT order_id, newest.* FROM (
            SELECT order_id, max_by(struct(ordered_at, customer, country, amount, changed_at), changed_at) AS newest
            FROM ({parse_orders(raw)}) WHERE amount IS NOT NULL GROUP BY order_id)"""


def parse_orders(raw: str) -> str:
    """Parses text into values; an unreadable amount is null."""
    return f"""
        SELECT order_id, cast(sent_at AS timestamp) AS ordered_at, customer, upper(trim(country)) AS country,
            try_cast(replace(trim(amount), ',', '.') AS decimal(12,2)) AS amount, received_at AS changed_at
        FROM {raw}"""


def new_orders(size: DemoSize, *, spoiled: bool, partitions: int | None = None) -> str:
    """Returns the orders of the next morning, cleaned; if `spoiled`, with three kinds of mistakes."""
    sign = "if(id % 40 = 0, -1, 1)" if spoiled else "1"
    place = "if(id % 90 = 0, '??', country)" if spoiled else "country"
    twice = "explode(if(id % 200 = 0, array(1, 2), array(1)))" if spoiled else "1"
    return f"""
        SELECT order_id, ordered_at, customer, country, amount, ordered_at AS changed_at FROM (
            SELECT {ORDER_ID} AS order_id, {_moment(str(DAYS))} AS ordered_at, concat('c-', customer) AS customer,
                {place} AS country, cast(cast({sign} * amount AS decimal(12,0)) / 100 AS decimal(12,2)) AS amount,
                {twice} AS copy
            FROM (SELECT *, {_order("amount")}
                FROM {_range("id", NEXT_MORNING, size.batch, partitions)}))"""


# Clicks of a stream that commits too often


def clicks(commit: int, size: DemoSize) -> str:
    """Returns what one commit adds: one file per partition of the range."""
    files = files_of(commit, size)
    first = commit * (size.files // size.commits + 1) * CLICKS_PER_FILE
    day = commit * size.click_days // size.commits
    pages = ", ".join(f"'{page}'" for page in PAGES)
    return f"""
        SELECT id, timestampadd(SECOND, pmod(xxhash64(id, 'second'), 86400), date_add(DATE'{FIRST_DAY}', {day})) AS at,
            pmod(xxhash64(id, 'customer'), {CUSTOMERS}) AS customer,
            element_at(array({pages}), cast(pmod(xxhash64(id, 'page'), {len(PAGES)}) + 1 AS int)) AS page,
            cast(20 + pmod(xxhash64(id, 'wait'), 400) AS int) AS wait_ms
        FROM {_range("id", first, files * CLICKS_PER_FILE, files)}"""


def files_of(commit: int, size: DemoSize) -> int:
    """Returns the commit's share of the files."""
    share, more = divmod(size.files, size.commits)
    return share + (commit < more)


# Shared parts of the statements

ORDER_ID = "concat('o-', lpad(cast(id AS string), 9, '0'))"


def _order(amount: str) -> str:
    """Returns the columns of order `id` except its time; later days and weekends sell more."""
    drawn = ", ".join(f"'{country}'" for country in DRAWN)
    some_day = f"pmod(xxhash64(id, 'day'), {DAYS})"
    day = f"if(id % 3 = 0, greatest({some_day}, pmod(xxhash64(id, 'later'), {DAYS})), {some_day})"
    weekend = f"if({day} % 7 >= 5, 3, 2)"
    return f"""
        {day} AS day,
        pmod(xxhash64(id, 'customer'), {CUSTOMERS}) AS customer,
        element_at(array({drawn}), cast(pmod(xxhash64(id, 'country'), {len(DRAWN)}) + 1 AS int)) AS country,
        (500 + pmod(xxhash64(id, '{amount}'), 9500)) * {weekend} div 2 AS amount"""


def _moment(day: str = "day") -> str:
    return (
        f"timestampadd(SECOND, pmod(xxhash64(id, 'second'), 86400), "
        f"cast(date_add(DATE'{FIRST_DAY}', cast({day} AS int)) AS timestamp))"
    )


def _range(name: str, first: int, count: int, partitions: int | None) -> str:
    spread = f", 1, {partitions}" if partitions else ""
    return f"(SELECT id AS {name} FROM range({first}, {first + count}{spread}))"

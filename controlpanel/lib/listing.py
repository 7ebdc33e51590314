"""Lists of rows: sorted, filtered and paged by their address, for pages and for what keeps them current."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from django.core.paginator import Page, Paginator
from django.db.models import F, OrderBy, Q, QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import reverse

PER_PAGE = 100
LONGEST = 100  # characters of a text that is looked for


@dataclass(frozen=True)
class Column:
    """One column; `order` holds what its rows are ordered by (names or expressions), () when they cannot be.

    `falling` columns (times, sizes) begin with the largest when they are chosen.
    """

    key: str
    label: Any
    order: tuple[Any, ...] = ()
    css: str = ""
    falling: bool = False


@dataclass(frozen=True)
class Choice:
    """One state by which a list can be filtered."""

    value: str
    word: Any
    rows: Q


@dataclass(frozen=True)
class Facet:
    """One more thing by which a list can be filtered; `every` is the word for not doing so.

    `choices` may read rows: it is called when the filter is shown, and when an address filters by it.
    """

    key: str
    label: Any
    every: Any
    choices: Callable[[], Sequence[Choice]]


@dataclass(frozen=True)
class Wish:
    """What a reader wants to see of a list; `facets` holds (key, value) of what it is filtered by besides."""

    listing: "Listing"
    q: str = ""
    state: str = ""
    facets: tuple[tuple[str, str], ...] = ()
    sort: str = ""
    page: int = 1

    @property
    def filtered(self) -> bool:
        """True when rows may be hidden."""
        return bool(self.q or self.state or self.facets)

    def query(self) -> str:
        """Return the wish as a query string in its one canonical form, "" for the plain list."""
        values = {
            "q": self.q,
            "state": self.state,
            **dict(self.facets),
            "sort": "" if self.sort == self.listing.default else self.sort,
            "page": "" if self.page == 1 else str(self.page),
        }
        return urlencode({key: value for key, value in values.items() if value})

    def href(self, **changes: Any) -> str:
        """Return the address of the list with these wishes changed."""
        query = replace(self, **changes).query()
        return reverse(self.listing.name) + (f"?{query}" if query else "")

    @property
    def here(self) -> str:
        """The address of what is shown."""
        return self.href()

    @property
    def topic(self) -> str:
        """What the page follows to stay current as it is sorted and filtered."""
        query = self.query()
        return f"{self.listing.name}:{query}" if query else self.listing.name


@dataclass(frozen=True)
class Header:
    """A column's head: the address that sorts by it ("" when none does), and how it is sorted now."""

    key: str
    label: Any
    css: str
    href: str
    direction: str


@dataclass(frozen=True)
class Listing:
    """A kind of list. `name` is its address, its topic and its element; `default` the column it is sorted by.

    `search` holds the lookups in which a text is looked for.
    """

    name: str
    columns: tuple[Column, ...]
    default: str
    choices: tuple[Choice, ...]
    search: tuple[str, ...]
    per_page: int = PER_PAGE
    facets: tuple[Facet, ...] = ()

    @property
    def labels(self) -> dict[str, str]:
        """The columns' words by their keys, for rows in which each cell names itself."""
        return {column.key: str(column.label) for column in self.columns}

    def read(self, data: QueryDict) -> Wish:
        """Return what an address asks for; what makes no sense is left out, except for values of facets.

        What a facet does not know may have been there once: its rows are gone, not everybody's wanted.
        """
        sort, state, page = data.get("sort", ""), data.get("state", ""), data.get("page", "")
        sortable = {column.key for column in self.columns if column.order}
        return Wish(
            self,
            q=" ".join(data.get("q", "").split())[:LONGEST],
            state=state if any(choice.value == state for choice in self.choices) else "",
            facets=tuple(
                (facet.key, value) for facet in self.facets if (value := data.get(facet.key, "")[:LONGEST])
            ),
            sort=sort if sort.removeprefix("-") in sortable else self.default,
            page=max(1, int(page)) if page.isascii() and page.isdigit() and len(page) < 7 else 1,
        )

    def parse(self, arg: str) -> Wish:
        """Return the wish whose canonical form is `arg`; ValueError for any other text."""
        wish = self.read(QueryDict(arg))
        if wish.query() != arg:
            raise ValueError("this is no list that a page can show")
        return wish

    def is_arg(self, arg: str) -> bool:
        """True for what parse() takes."""
        try:
            self.parse(arg)
        except ValueError:
            return False
        return True

    def select(self, rows: QuerySet[Any], wish: Wish) -> QuerySet[Any]:
        """Filter and sort the rows."""
        for word in wish.q.split():
            found = Q()
            for lookup in self.search:
                found |= Q(**{f"{lookup}__icontains": word})
            rows = rows.filter(found)
        for choice in self.choices:
            if choice.value == wish.state:
                rows = rows.filter(choice.rows)
        for facet in self.facets:
            if value := dict(wish.facets).get(facet.key):
                chosen = next((choice for choice in facet.choices() if choice.value == value), None)
                rows = rows.filter(chosen.rows) if chosen else rows.none()
        column = next(column for column in self.columns if column.key == wish.sort.removeprefix("-"))
        falling = wish.sort.startswith("-")
        return rows.order_by(*(_ordered(part, falling) for part in column.order), "-pk" if falling else "pk")


@dataclass(frozen=True)
class Table:
    """One page of a list, as its template shows it."""

    wish: Wish
    page: Page[Any]
    rows: list[Any]

    @property
    def headers(self) -> list[Header]:
        """The heads of the columns, in their order."""
        return [self._header(column) for column in self.wish.listing.columns]

    def _header(self, column: Column) -> Header:
        sort, direction = self.wish.sort, ""
        then = f"-{column.key}" if column.falling else column.key
        if sort.removeprefix("-") == column.key:
            direction = "descending" if sort.startswith("-") else "ascending"
            then = column.key if sort.startswith("-") else f"-{column.key}"
        href = self.wish.href(sort=then, page=1) if column.order else ""
        return Header(column.key, column.label, column.css, href, direction)

    @property
    def sorts(self) -> list[tuple[str, str, bool]]:
        """All ways to sort, for pages too narrow for heads: (value, word, chosen)."""
        return [
            (sort, f"{column.label} {arrow}", sort == self.wish.sort)
            for column in self.wish.listing.columns
            if column.order
            for sort, arrow in ((column.key, "↑"), (f"-{column.key}", "↓"))
        ]

    @property
    def facets(self) -> list[dict[str, Any]]:
        """The further filters as a form shows them: key, label, every, and (value, word, chosen) of each."""
        wanted = dict(self.wish.facets)
        return [
            {
                "key": facet.key,
                "label": facet.label,
                "every": facet.every,
                "choices": [
                    (choice.value, choice.word, choice.value == wanted.get(facet.key))
                    for choice in facet.choices()
                ],
            }
            for facet in self.wish.listing.facets
        ]

    @cached_property
    def labels(self) -> dict[str, str]:
        """The words of the columns, translated once for all rows."""
        return self.wish.listing.labels

    @property
    def pages(self) -> bool:
        """True when there is more than one page."""
        return self.page.paginator.num_pages > 1

    @property
    def clear(self) -> str:
        """The address of the list without a filter."""
        return self.wish.href(q="", state="", facets=(), page=1)

    @property
    def before(self) -> str:
        """The address of the page before this one, "" on the first."""
        return self.wish.href(page=self.page.number - 1) if self.page.has_previous() else ""

    @property
    def after(self) -> str:
        """The address of the page after this one, "" on the last."""
        return self.wish.href(page=self.page.number + 1) if self.page.has_next() else ""


def table(wish: Wish, rows: QuerySet[Any], show: Callable[[list[Any]], list[Any]] = list) -> Table:
    """Return the page of rows that a wish asks for; `show` makes what the template takes of all of them."""
    page = Paginator(wish.listing.select(rows, wish), wish.listing.per_page).get_page(wish.page)
    # The last page stands for all that lie behind it.
    return Table(replace(wish, page=page.number), page, show(list(page.object_list)))


def tidy(request: HttpRequest, response: HttpResponse, shown: Table) -> HttpResponse:
    """Let the browser show the canonical address after a filter form was sent by htmx."""
    if request.headers.get("HX-Request") and not request.headers.get("HX-Boosted"):
        response["HX-Replace-Url"] = shown.wish.here
    return response


def _ordered(part: Any, falling: bool) -> OrderBy:
    """Order by a name or an expression; rows without a value come last either way."""
    expression = F(part) if isinstance(part, str) else part
    return OrderBy(expression, descending=falling, nulls_last=True)

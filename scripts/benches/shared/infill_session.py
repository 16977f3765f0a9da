"""A recorded editing session: what stands around the cursor after each keystroke.

`EDITS` are places of a file and the keys that were pressed there; a letter that is not printable is
one of these: BACK deletes the character before the cursor, SOON accepts nothing and asks again, as
an editor does when the cursor rests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

BACK, SOON = "\b", "\0"

OTHER_FILES = {
    "basket.py": '''"""Items in a basket."""

from dataclasses import dataclass


@dataclass
class Item:
    """One kind of thing."""

    name: str
    price: float
    count: int = 1

    @property
    def total(self) -> float:
        """What all of them cost."""
        return self.price * self.count


class Basket:
    """What a customer wants to buy."""

    def __init__(self) -> None:
        self.items: list[Item] = []

    def add(self, item: Item) -> None:
        """Put in an item; of one that is there already, more."""
        for known in self.items:
            if known.name == item.name:
                known.count += item.count
                return
        self.items.append(item)
''',
    "discounts.py": '''"""Discounts on baskets."""

from basket import Basket

QUANTITY, PERCENT = 10, 5.0


def discount(basket: Basket) -> float:
    """What a basket costs less."""
    whole = sum(item.total for item in basket.items if item.count >= QUANTITY)
    return whole * PERCENT / 100
''',
}

FILE = '''"""Bills for baskets."""

from __future__ import annotations

from basket import Basket, Item
from discounts import discount

TAX = 0.19


class Bill:
    """What a customer has to pay."""

    def __init__(self, basket: Basket, customer: str) -> None:
        self.basket = basket
        self.customer = customer
        self.paid = 0.0

    @property
    def net(self) -> float:
        """The price of all items without tax."""
        return sum(item.total for item in self.basket.items) - discount(self.basket)

    @property
    def tax(self) -> float:
        """The tax on them."""
        return self.net * TAX

    def pay(self, amount: float) -> None:
        """Note that the customer has paid something.

        Raises:
            ValueError: the amount is not positive.
        """
        if amount <= 0:
            raise ValueError(f"{amount} cannot be paid")
        self.paid += amount

    def lines(self) -> list[str]:
        """One line for each item."""
        return [f"{item.count} x {item.name}: {item.total:.2f}" for item in self.basket.items]


def print_bill(bill: Bill) -> None:
    """Print a bill."""
    print(f"Bill for {bill.customer}")
    for line in bill.lines():
        print(line)
    print(f"net {bill.net:.2f}, tax {bill.tax:.2f}")
'''

EDITS: tuple[tuple[str, str], ...] = (
    (
        "        return self.net * TAX\n",
        "\n    @property\n    def gross(self) -> float:\n        retr\b\bturn self.net + self.tax",
    ),
    (
        "        self.paid += amount\n",
        "\n    @property\n    def open(self) -> float:\n        \0return self.gros\0s - self.paid",
    ),
    ('    print(f"net {bill.net:.2f}, tax {bill.tax:.2f}', ", gross {bill.gross:.2f}"),
    (
        'gross {bill.gross:.2f}")\n',
        '    if bill.open > 0:\n        print(f"to pay: {bill.opne\b\ben:.2f}")\n\n\n',
    ),
    (
        '        print(f"to pay: {bill.open:.2f}")\n\n\n',
        "def total(bills: list[Bill]) -> float:\n    return sum(bill.gross for bill in bills)\n",
    ),
)
"""(The text after which the cursor was put, the keys.)"""


@dataclass(frozen=True)
class Moment:
    """What an editor sends after a keystroke."""

    before: str
    after: str

    @property
    def prefix(self) -> str:
        """The lines above the cursor."""
        return self.before[: self.before.rfind("\n") + 1]

    @property
    def line(self) -> str:
        """The cursor's line before it."""
        return self.before[len(self.prefix) :]


def moments() -> Iterator[Moment]:
    """The session, one keystroke after the other."""
    text = FILE
    for place, keys in EDITS:
        at = text.index(place) + len(place)
        before, after = text[:at], text[at:]
        for key in keys:
            if key == BACK:
                before = before[:-1]
            elif key != SOON:
                before += key
            yield Moment(before, after)
        text = before + after

"""How the demo's teacher reads passages, which it recognizes by their titles, and its own earlier statements."""

from collections.abc import Callable

from refinery.demo.teacher.facts import Fact, read_statements
from refinery.demo.teacher.prompt_form import PromptForm, shown_passages
from refinery.demo.world.entities import Entity, World

# The reply to each form of prompt, from its question and the other values filled in.
Replies = list[tuple[PromptForm, Callable[[str, str], str]]]


class Reader:
    """Turns text into facts. `memory` holds the facts of the entities with the ids `known`, which need no text."""

    def __init__(self, world: World, known: set[str]) -> None:
        self._world = world
        self._by_title = {entity.title: entity for entity in world.entities.values()}
        self.memory = [fact for entity in world.entities.values() if entity.id in known for fact in self._facts_of(entity)]

    def passage(self, title: str, text: str) -> list[Fact]:
        """The facts that a passage states. For its entity, only those whose objects are in the text, which may have been shortened."""
        entity = self._by_title.get(title)
        facts = [fact for fact in self._facts_of(entity) if fact.object in text] if entity else []
        return list(dict.fromkeys([*facts, *read_statements(text)]))

    def facts(self, text: str) -> list[Fact]:
        """The facts in a prompt's text: those of its passages, and its statements."""
        shown = [fact for passage in shown_passages(text) for fact in self.passage(passage.title, passage.text)]
        return list(dict.fromkeys([*shown, *read_statements(text)]))

    def _facts_of(self, entity: Entity) -> list[Fact]:
        return [Fact(relation, entity.title, self._world.object_name(entity, relation)) for relation in entity.facts]

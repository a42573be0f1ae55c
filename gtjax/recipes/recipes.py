"""The recipes by name: one file a recipe, and one line each."""

from __future__ import annotations

from gtjax.recipes.base import Recipe, Recipes
from gtjax.recipes.config import RecipeConfig
from gtjax.recipes.consistency import Consistency
from gtjax.recipes.flag import Flag
from gtjax.recipes.sharpening import Sharpening

RECIPES: dict[str, type[Recipe]] = {
    "consistency": Consistency,
    "sharpening": Sharpening,
    "flag": Flag,
}


def recipes_of(config: RecipeConfig) -> Recipes:
    """Those that the settings use."""
    made = (recipe.of(config) for recipe in RECIPES.values())
    return Recipes(tuple(each for each in made if each is not None))

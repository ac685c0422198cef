from .texts import GivenTexts as GivenTexts

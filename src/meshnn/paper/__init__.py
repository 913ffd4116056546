"""The paper, reproduced with the library: experiments declare trials; figures are drawn from what was saved."""

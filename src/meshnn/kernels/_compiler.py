"""Inner kernels are compiled to LLVM's language and no further.

Numba optimises every function on its own and translates it to machine code, then does it again wherever the function is
inlined. Nobody calls inner kernels but other kernels, so here their code waits until an entry point takes it in: it is
optimised once, as a whole, and one machine code is made.
"""

from __future__ import annotations

import llvmlite.binding as llvm
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import FunctionPass, PassManager, register_pass
from numba.core.typed_passes import (
    IRLegalization,
    NativeLowering,
    NoPythonBackend,
    NopythonTypeInference,
    PreLowerStripPhis,
)
from numba.core.untyped_passes import FixupArgs, GenericRewrites, IRProcessing, ReconstructSSA, TranslateByteCode

__all__ = ["EntryCompiler", "InnerCompiler", "InnerLibrary", "Loading"]

#: What marks the code of an inner kernel in the cache.
KIND = "inner"


class _Codegen:
    """Numba's, for code that no machine code was made of."""

    def __init__(self, codegen):
        self._codegen = codegen

    def __getattr__(self, name):
        return getattr(self._codegen, name)

    def set_env(self, name, env):
        """Machine code would have a place for it; `EntryCompiler` sees to that."""


class InnerLibrary(JITCodeLibrary):
    """The code of an inner kernel and of all that it calls."""

    @property
    def codegen(self):
        """Whoever makes code."""
        return _Codegen(self._codegen)

    def finalize(self):
        """Gather the code; neither optimise nor translate it."""
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name):
        """There is no machine code."""
        self._ensure_finalized()
        return 0

    def serialize_using_object_code(self):
        """For the cache."""
        return self.name, KIND, self._get_module_for_linking().as_bitcode()


class Loading:
    """A target that code of inner kernels is loaded for; without it, Numba would make machine code of it."""

    def __init__(self, target):
        self._target = target

    def __getattr__(self, name):
        return getattr(self._target, name)

    def codegen(self):
        """Whoever loads code."""
        return self

    def unserialize_library(self, state):
        """The code of an inner kernel."""
        name, _, code = state
        library = InnerLibrary(self._target.codegen(), name)
        library._final_module = llvm.parse_bitcode(code)
        library._finalize_dynamic_globals()
        library._finalized = True
        return library


@register_pass(mutates_CFG=False, analysis_only=True)
class _NoAnnotation(FunctionPass):
    """Where Numba would write down the types of all names, for people."""

    _name = "meshnn_no_annotation"

    def __init__(self):
        FunctionPass.__init__(self)

    def run_pass(self, state):
        """Say that there are none."""
        state.type_annotation = None
        return False


class _Short(CompilerBase):
    """What Numba does, without what kernels have no use for: closures, loops over types, arrays as expressions ...

    Most of the time of a first call is Numba's, not LLVM's.
    """

    def define_pipelines(self):
        """The passes, in order."""
        short = PassManager("kernels")
        for one in (TranslateByteCode, FixupArgs, IRProcessing, GenericRewrites, ReconstructSSA, NopythonTypeInference,
                    PreLowerStripPhis, _NoAnnotation, IRLegalization, NativeLowering, NoPythonBackend):  # fmt: skip
            short.add_pass(one, one._name)
        short.finalize()
        return [short]


class InnerCompiler(_Short):
    """Makes an `InnerLibrary` of a function."""

    def __init__(self, typingctx, targetctx, library, args, return_type, flags, locals):
        library = InnerLibrary(targetctx.codegen(), "inner kernel") if library is None else library
        super().__init__(typingctx, targetctx, library, args, return_type, flags, locals)


class EntryCompiler(_Short):
    """Makes machine code of a function and of all inner kernels that it calls."""

    def _compile_bytecode(self):
        result = super()._compile_bytecode()
        for env in result._find_referenced_environments():  # as Numba does with code that it loads
            result.library.codegen.set_env(env.env_name, env)
        return result

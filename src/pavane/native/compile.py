"""LLVM: a module's text to an object file in memory, and an object file to callable addresses."""

from __future__ import annotations

import itertools

import llvmlite.binding as llvm

from pavane.native.cpu import Cpu
from pavane.native.lower import DISMISS, LAUNCH, RESIDENT
from pavane.native.packed_forms import FORMS

_OPTIMISATION = 2
_libraries = itertools.count()


def compile_object(text: str, cpu: Cpu) -> bytes:
    """Optimised machine code for that processor, as a relocatable object file. The same text gives the same bytes."""
    _initialise()
    machine = _machine(cpu)
    module = llvm.parse_assembly(text)
    module.triple = llvm.get_process_triple()
    module.data_layout = str(machine.target_data)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=_OPTIMISATION)
    options.loop_vectorization = False
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return machine.emit_object(module)


class Loaded:
    """A loaded object: the addresses of its entry points. They are valid while this lives."""

    def __init__(self, object_file: bytes) -> None:
        _initialise()
        self._jit = llvm.create_lljit_compiler(_machine(None))
        library = llvm.JITLibraryBuilder().add_object_img(object_file).add_current_process()
        library.export_symbol(LAUNCH).export_symbol(RESIDENT).export_symbol(DISMISS)
        for form in FORMS.values():
            library.export_symbol(form.entry)
        self._tracker = library.link(self._jit, f"pavane{next(_libraries)}")
        self.launch = self._tracker[LAUNCH]
        self.resident = self._tracker[RESIDENT]
        self.dismiss = self._tracker[DISMISS]
        self.pack = {dtype: self._tracker[form.entry] for dtype, form in FORMS.items()}


def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def _machine(cpu: Cpu | None) -> llvm.TargetMachine:
    target = llvm.Target.from_default_triple()
    if cpu is None:
        return target.create_target_machine(opt=_OPTIMISATION, jit=True, reloc="pic", codemodel="small")
    return target.create_target_machine(
        cpu=cpu.name, features=cpu.features, opt=_OPTIMISATION, jit=True, reloc="pic", codemodel="small"
    )

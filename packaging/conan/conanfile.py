# conan create packaging/conan -s compiler.cppstd=20

import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.files import copy, load


class Zero(ConanFile):
    name = "zero"
    description = "Composable ZeRO (Zero Redundancy Optimizer) building blocks"
    license = "MIT"
    topics = ("deep learning", "distributed training", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    no_copy_source = True

    @property
    def _root(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        text = load(self, os.path.join(self._root, "include", "zero", "core", "version.hpp"))
        self.version = ".".join(re.search(rf"version_{part} = (\d+);", text).group(1) for part in ("major", "minor", "patch"))

    def export_sources(self):
        copy(self, "include/*", self._root, self.export_sources_folder)
        copy(self, "LICENSE", self._root, self.export_sources_folder)

    def validate(self):
        check_min_cppstd(self, 20)

    def package_id(self):
        self.info.clear()

    def package(self):
        copy(self, "include/*", self.source_folder, self.package_folder)
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        self.cpp_info.set_property("cmake_file_name", "zero")
        self.cpp_info.set_property("cmake_target_name", "zero::zero")
        self.cpp_info.set_property("pkg_config_name", "zero")
        if self.settings.os in ("Linux", "FreeBSD"):
            self.cpp_info.system_libs = ["pthread"]

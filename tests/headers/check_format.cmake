# cmake -DROOT=<repository> -DCLANG_FORMAT=<clang-format 16> -P check_format.cmake
# Every C++ file is formatted by the .clang-format of the root.

cmake_minimum_required(VERSION 3.20)

set(patterns "")
foreach(folder IN ITEMS include tests bench examples src)
    foreach(suffix IN ITEMS hpp cpp cuh cu h ipp tpp)
        list(APPEND patterns "${ROOT}/${folder}/*.${suffix}")
    endforeach()
endforeach()
file(GLOB_RECURSE files RELATIVE "${ROOT}" ${patterns})
execute_process(COMMAND "${CLANG_FORMAT}" --dry-run --Werror --ferror-limit=1 ${files} WORKING_DIRECTORY "${ROOT}" RESULT_VARIABLE result ERROR_VARIABLE errors)
list(LENGTH files count)
if(NOT result EQUAL 0)
    string(REGEX MATCHALL "[^ \n]+: error: [^\n]*" errors "${errors}")
    list(JOIN errors "\n" errors)
    message(FATAL_ERROR "of ${count} files, these are not formatted (clang-format-16 -i <file>):\n${errors}")
endif()
message("${count} files checked")

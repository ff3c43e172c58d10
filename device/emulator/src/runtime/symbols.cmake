# Every function of the real libcudart.so.13 is exported. symbols.txt names them; for each one a weak function is generated that says so and
# returns cudaErrorNotSupported, and the linker prefers the definition of the emulator's sources where there is one.
#
# Sets RUNTIME_GENERATED_SOURCES and RUNTIME_VERSION_SCRIPT.

set(RUNTIME_SYMBOLS_FILE ${CMAKE_CURRENT_LIST_DIR}/symbols.txt)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${RUNTIME_SYMBOLS_FILE})
file(STRINGS ${RUNTIME_SYMBOLS_FILE} RUNTIME_SYMBOLS)

set(functions "extern \"C\" int aicf_emulator_unimplemented(const char* function, int* said);\n")
set(exports "")
foreach(symbol IN LISTS RUNTIME_SYMBOLS)
    string(APPEND functions
        "extern \"C\" __attribute__((weak, visibility(\"default\"))) int ${symbol}() {\n"
        "    static int said = 0;\n    return aicf_emulator_unimplemented(\"${symbol}\", &said);\n}\n")
    string(APPEND exports "    ${symbol};\n")
endforeach()

set(RUNTIME_GENERATED_SOURCES ${CMAKE_CURRENT_BINARY_DIR}/runtime_symbols.cpp)
set(RUNTIME_VERSION_SCRIPT ${CMAKE_CURRENT_BINARY_DIR}/libcudart.map)
file(CONFIGURE OUTPUT ${RUNTIME_GENERATED_SOURCES} CONTENT "${functions}" @ONLY)
file(CONFIGURE OUTPUT ${RUNTIME_VERSION_SCRIPT} CONTENT "libcudart.so.13 {\nglobal:\n${exports}    aicfEmulator*;\nlocal:\n    *;\n};\n" @ONLY)
